import type { ComponentChildren } from 'preact';
import { span } from '../../../base/units.ts';

/** Length of the axis in milliseconds; of a shorter history, its own length, and this at least. */
const MOST_MS = 900_000;
const LEAST_MS = 30_000;

const WIDTH = 240;
const HEIGHT = 56;
/** Room above the highest point, so that its line is whole. */
const TOP = 3;

interface TileProps {
  readonly title: string;
  /** The present value. */
  readonly value: ComponentChildren;
  /** More about it in a few words. */
  readonly note: string;
  /** Name of a colour in style.css. */
  readonly colour: string;
  /** Unix milliseconds, ascending. */
  readonly times: readonly number[];
  /** One value for each time; null: there is none. */
  readonly values: readonly (number | null)[];
  /** The upper end of the scale; left out: the highest value. */
  readonly most?: number;
  readonly format: (value: number) => string;
}

/** A number that one looks for first, with its last quarter of an hour, or as much of it as there is. */
export function Tile({ title, value, note, colour, times, values, most, format }: TileProps) {
  const known = values.filter((each) => each !== null);
  const highest = Math.max(0, ...known);
  const last = times.at(-1) ?? 0;
  const length = Math.min(MOST_MS, Math.max(LEAST_MS, last - (times[0] ?? last)));
  const top = most ?? highest;
  const runs = runsOf(values, (value, index) => {
    const x = (((times[index] ?? 0) - last + length) / length) * WIDTH;
    return x < 0 ? undefined : [x, HEIGHT - 1 - (value / (top || 1)) * (HEIGHT - 1 - TOP)];
  });
  const areas = runs.map((points) => `M${points[0]?.[0].toFixed(1)} ${HEIGHT}L${textOf(points)}V${HEIGHT}Z`);
  const range =
    known.length === 0 ? 'no values yet' : `from ${format(Math.min(...known))} to ${format(highest)}`;
  return (
    <section class={`panel tile ${colour}`} aria-label={title}>
      <h2>{title}</h2>
      <p class="value">{value}</p>
      <p class="muted small">{note}</p>
      <svg
        viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
        preserveAspectRatio="none"
        role="img"
        aria-label={`${title}, the last ${span(length / 1000)}: ${range}`}
      >
        <path class="area" d={areas.join('')} />
        <path class="line" d={lineOf(runs)} />
      </svg>
      <p class="axis small muted" aria-hidden="true">
        <span>{span(length / 1000)} ago</span>
        <span>{known.length === 0 ? '' : `max ${format(highest)}`}</span>
        <span>now</span>
      </p>
    </section>
  );
}

const SPARK = { width: 120, height: 24 } as const;
/** Points of the axis of a sparkline at least. */
const POINTS = 6;

interface SparklineProps {
  /** Describes the line to screen readers. */
  readonly label: string;
  /** Oldest first; null: there is no value. */
  readonly values: readonly (number | null)[];
  /** Drawn over them, on the same scale. */
  readonly errors: readonly (number | null)[];
}

/** A small line without axes. An SVG path costs less than a canvas, of which a page with 200 rows would have 200. */
export function Sparkline({ label, values, errors }: SparklineProps) {
  const { width, height } = SPARK;
  const length = Math.max(POINTS, values.length);
  const most = Math.max(0, ...values.map((value) => value ?? 0)) || 1;
  const first = length - values.length;
  const step = width / Math.max(1, length - 1);
  const path = (of: typeof values): string =>
    lineOf(
      runsOf(of, (value, index) => [(first + index) * step, height - 2 - (value / most) * (height - 4)]),
    );
  return (
    <svg
      class="sparkline"
      viewBox={`0 0 ${width} ${height}`}
      preserveAspectRatio="none"
      role="img"
      aria-label={label}
    >
      <path class="blue" d={path(values)} />
      {errors.some((value) => value !== null && value > 0) && <path class="red" d={path(errors)} />}
    </svg>
  );
}

type Point = readonly [x: number, y: number];

/** The points of a line, with gaps where there is no value. `place`: undefined if its point is not to be seen. */
function runsOf(
  values: readonly (number | null)[],
  place: (value: number, index: number) => Point | undefined,
): Point[][] {
  const runs: Point[][] = [];
  let run: Point[] = [];
  for (const [index, value] of values.entries()) {
    const point = value === null ? undefined : place(value, index);
    if (point === undefined) run = [];
    else if (run.push(point) === 1) runs.push(run);
  }
  return runs;
}

/** A single point is a line of no length, which round ends make visible. */
function lineOf(runs: readonly Point[][]): string {
  return runs.map((points) => `M${textOf(points)}${points.length === 1 ? 'h0' : ''}`).join('');
}

function textOf(points: readonly Point[]): string {
  return points.map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`).join('L');
}
