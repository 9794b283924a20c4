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
  const { line, area } = shapeOf(times, values, last - length, length, top === 0 ? 1 : top);
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
        <path class="area" d={area} />
        <path class="line" d={line} />
      </svg>
      <p class="axis small muted" aria-hidden="true">
        <span>{span(length / 1000)} ago</span>
        <span>{known.length === 0 ? '' : `max ${format(highest)}`}</span>
        <span>now</span>
      </p>
    </section>
  );
}

/** The paths of the line and of the area below it, with gaps where there is no value. */
function shapeOf(
  times: readonly number[],
  values: readonly (number | null)[],
  from: number,
  length: number,
  top: number,
): { line: string; area: string } {
  const place = (index: number): [x: number, y: number] => [
    (((times[index] ?? 0) - from) / length) * WIDTH,
    HEIGHT - 1 - ((values[index] ?? 0) / top) * (HEIGHT - 1 - TOP),
  ];
  const runs: [x: number, y: number][][] = [];
  let run: [x: number, y: number][] = [];
  for (const [index, value] of values.entries()) {
    if (value === null || (times[index] ?? 0) < from) run = [];
    else if (run.push(place(index)) === 1) runs.push(run);
  }
  const text = (points: [x: number, y: number][]): string =>
    points.map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`).join('L');
  return {
    // A single point is a line of no length, which round ends make visible.
    line: runs.map((points) => `M${text(points)}${points.length === 1 ? 'h0' : ''}`).join(''),
    area: runs.map((points) => `M${points[0]?.[0].toFixed(1)} ${HEIGHT}L${text(points)}V${HEIGHT}Z`).join(''),
  };
}
