import { useEffect, useRef, useState } from 'preact/hooks';
import uPlot from 'uplot';
import { type History, RANGES, type Range, type SeriesName } from '../../view.ts';
import { useFetch } from '../api.ts';
import { bytes, hourAndMinute, latency, momentWithSeconds, rate, utcDayAndMonth } from '../format.ts';
import { changeQuery } from './links.tsx';
import { Panel, Pending } from './panel.tsx';
import { colours } from './theme.tsx';

interface RangeEntry {
  readonly label: string;
  readonly words: string;
  readonly seconds: number;
  /** Interval at which the history is fetched, in milliseconds. */
  readonly everyMs: number;
}

const RANGE: Readonly<Record<Range, RangeEntry>> = {
  '15m': { label: '15 min', words: 'the last 15 minutes', seconds: 900, everyMs: 5_000 },
  '3h': { label: '3 h', words: 'the last 3 hours', seconds: 10_800, everyMs: 15_000 },
  '24h': { label: '24 h', words: 'the last 24 hours', seconds: 86_400, everyMs: 60_000 },
};

interface ChartEntry extends Pick<ChartProps, 'title' | 'format'> {
  readonly lines: readonly (Omit<Line, 'values'> & { readonly series: SeriesName })[];
}

const CHARTS: readonly ChartEntry[] = [
  {
    title: 'Responses per second',
    lines: [
      { series: '2xx', label: '2xx', colour: 'green' },
      { series: '3xx', label: '3xx', colour: 'blue' },
      { series: '4xx', label: '4xx', colour: 'orange' },
      { series: '5xx', label: '5xx', colour: 'red' },
    ],
    format: rate,
  },
  {
    title: 'Latency',
    lines: [
      { series: 'p50', label: 'p50', colour: 'blue' },
      { series: 'p95', label: 'p95', colour: 'violet' },
      { series: 'p99', label: 'p99', colour: 'orange' },
    ],
    format: latency,
  },
  {
    title: 'Challenges per second',
    lines: [{ series: 'challenges', label: 'challenges', colour: 'violet' }],
    format: rate,
  },
];

interface ChartsProps {
  /** Name of the deployment. */
  readonly name: string;
  /** Value of the query parameter `range`; null if the address has none. */
  readonly range: string | null;
}

/** The charts of a deployment, with a choice of the range and one crosshair for all. */
export function Charts({ name, range: wanted }: ChartsProps) {
  const range = RANGES.find((each) => each === wanted) ?? '15m';
  const { words, seconds, everyMs } = RANGE[range];
  const path = `/api/history?deployment=${encodeURIComponent(name)}&range=${range}`;
  const { data, error } = useFetch<History>(path, everyMs);
  // Its time: the index of a point changes while the page gets new ones.
  const [moment, setMoment] = useState<number>();
  const cursor = data && indexOf(data.times, moment);
  const setCursor = (index: number | undefined): void =>
    setMoment(index === undefined ? undefined : data?.times[index]);
  return (
    <Panel label="Charts">
      <div class="toolbar">
        <fieldset class="choice">
          <legend class="hidden">Time range</legend>
          {RANGES.map((each) => (
            <label key={each}>
              <input
                type="radio"
                name="range"
                checked={each === range}
                onChange={() => {
                  setMoment(undefined);
                  changeQuery({ range: each });
                }}
              />
              {RANGE[each].label}
            </label>
          ))}
        </fieldset>
        {data !== undefined && <Crosshair times={data.times} cursor={cursor} onCursor={setCursor} />}
      </div>
      {(data === undefined || error !== undefined) && <Pending error={error} />}
      {data !== undefined && (
        <div class="charts">
          {CHARTS.map(({ title, lines, format }) => (
            <Chart
              key={title}
              title={title}
              label={`${title} of ${name}, ${words}`}
              times={data.times}
              seconds={seconds}
              lines={lines.map((line) => ({ ...line, values: data.series[line.series] }))}
              format={format}
              group={name}
              cursor={cursor}
              onCursor={setCursor}
            />
          ))}
        </div>
      )}
    </Panel>
  );
}

/** The index of the point at a time, or of the one before it; undefined: it is older than all of them. */
function indexOf(times: readonly number[], moment: number | undefined): number | undefined {
  const index = moment === undefined ? -1 : times.findLastIndex((at) => at <= moment);
  return index === -1 ? undefined : index;
}

interface CrosshairProps {
  readonly times: readonly number[];
  readonly cursor: number | undefined;
  readonly onCursor: (index: number | undefined) => void;
  readonly label?: string;
  /** Text of a time, given in Unix milliseconds. */
  readonly textOf?: (at: number) => string;
}

/** The time of the crosshair, which a keyboard moves, too. At the end there is none, and the newest values show. */
export function Crosshair({
  times,
  cursor,
  onCursor,
  label = 'Time',
  textOf = momentWithSeconds,
}: CrosshairProps) {
  const last = Math.max(0, times.length - 1);
  const at = times[cursor ?? last];
  const text = at === undefined ? 'no points yet' : textOf(at);
  return (
    <label class="crosshair">
      {label}
      <input
        type="range"
        min={0}
        max={last}
        value={Math.min(cursor ?? last, last)}
        aria-valuetext={text}
        onInput={({ currentTarget: { valueAsNumber } }) =>
          onCursor(valueAsNumber >= last ? undefined : valueAsNumber)
        }
      />
      <output>{text}</output>
    </label>
  );
}

const HEIGHT = 150;
/** Distances of the marks of a time axis in seconds, and the length from which on it has days. */
const HOURS = [60, 120, 300, 900, 1800, 3600, 7200, 14_400, 21_600];
const DAYS = [1, 2, 7, 14, 28, 56, 112, 364, 728].map((days) => days * 86_400);
/** Steps of an axis of bytes. */
const BINARY = Array.from({ length: 50 }, (_, power) => 2 ** power);
const DAYS_FROM = 172_800;

interface Line {
  readonly label: string;
  /** Name of a colour in style.css. */
  readonly colour: string;
  /** One value for each time; null: there is none. */
  readonly values: readonly (number | null)[];
}

export interface ChartProps {
  readonly title: string;
  /** Describes the chart to screen readers. */
  readonly label: string;
  /** Unix milliseconds, ascending. */
  readonly times: readonly number[];
  /** Longest time axis in seconds; it ends at the last time. */
  readonly seconds: number;
  readonly lines: readonly Line[];
  readonly format: (value: number) => string;
  /** Charts with the same name share the crosshair of the pointer. */
  readonly group: string;
  /** Index of the time with the crosshair; undefined: there is none. */
  readonly cursor: number | undefined;
  /** Called when the pointer moves the crosshair, not when new data do. */
  readonly onCursor: (index: number | undefined) => void;
}

/** Lines over time. The legend shows the newest values, or those under the crosshair. */
export function Chart(props: ChartProps) {
  const { title, label, times, lines, format, cursor } = props;
  const canvas = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot>(undefined);
  const latest = useRef(props);
  latest.current = props;
  const paint = colours.value;
  const shape = lines.map((line) => `${line.label} ${line.colour}`).join();
  // A change of colours, of time range or lines needs another plot; other data do not.
  useEffect(() => {
    const place = canvas.current;
    if (place === null) return;
    const onCursor = (index: number | undefined): void => latest.current.onCursor(index);
    const fit = (): void => {
      const { clientWidth: width } = place;
      if (width === 0) return;
      if (plot.current !== undefined) plot.current.setSize({ width, height: HEIGHT });
      else
        plot.current = new uPlot(
          settings(latest.current, place, width, onCursor),
          dataOf(latest.current),
          place,
        );
    };
    const observer = new ResizeObserver(fit);
    observer.observe(place);
    return () => {
      observer.disconnect();
      plot.current?.destroy();
      plot.current = undefined;
    };
  }, [paint, shape, props.seconds, props.group]);
  useEffect(() => {
    // At once, so that the crosshair is placed by the new times.
    plot.current?.batch((drawn: uPlot) => drawn.setData(dataOf(latest.current)));
  }, [times]);
  useEffect(() => {
    const drawn = plot.current;
    if (drawn === undefined || (drawn.cursor.idx ?? undefined) === cursor) return;
    const at = cursor === undefined ? undefined : times[cursor];
    const left = at === undefined ? -10 : drawn.valToPos(at / 1000, 'x');
    drawn.setCursor({ left, top: 0 }, false);
  }, [cursor, times]);
  const shown = cursor ?? times.length - 1;
  return (
    <figure>
      <figcaption>
        <span class="title">{title}</span>
        {lines.map((line) => (
          <span key={line.label} class={`key ${line.colour}`}>
            {line.label} <b>{valueText(line.values[shown], format)}</b>
          </span>
        ))}
      </figcaption>
      <div class="canvas" role="img" aria-label={label} ref={canvas} />
    </figure>
  );
}

function valueText(value: number | null | undefined, format: (value: number) => string): string {
  return value === null || value === undefined ? '–' : format(value);
}

function dataOf({ times, lines }: ChartProps): uPlot.AlignedData {
  return [times.map((at) => at / 1000), ...lines.map(({ values }) => values)] as uPlot.AlignedData;
}

function settings(
  { lines, format, seconds, group }: ChartProps,
  place: HTMLElement,
  width: number,
  onCursor: (index: number | undefined) => void,
): uPlot.Options {
  const colour = (name: string): string => colourOf(place, name);
  const hasDays = seconds > DAYS_FROM;
  let told: MouseEvent | null | undefined;
  const axis = {
    stroke: colour('muted'),
    font: '11px system-ui, sans-serif',
    grid: { stroke: colour('grid'), width: 1 },
    ticks: { show: false },
  };
  return {
    width,
    height: HEIGHT,
    legend: { show: false },
    cursor: { y: false, points: { size: 5 }, drag: { x: false, y: false }, sync: { key: group } },
    padding: [6, 24, 0, 0],
    scales: {
      x: {
        // Days are those of UTC. Marks of numbers are multiples of a day; marks of times are midnights of the browser.
        time: !hasDays,
        // By the data: for a single point, uPlot names an end that is a thousand days later.
        range: ({ data: [times] }) => {
          const last = times.at(-1) ?? 0;
          return [Math.max(last - seconds, Math.min(times[0] ?? last, last - seconds / 8)), last];
        },
      },
      y: { range: (_plot, _min, max) => [0, max > 0 ? max * 1.1 : 1] },
    },
    axes: [
      {
        ...axis,
        size: 22,
        space: 70,
        incrs: hasDays ? DAYS : HOURS,
        values: (_plot, times) => times.map((at) => (hasDays ? utcDayAndMonth : hourAndMinute)(at * 1000)),
      },
      {
        ...axis,
        size: hasDays ? 62 : 50,
        space: 28,
        ...(format === bytes && { incrs: BINARY }),
        values: (_plot, values) => values.map(format),
      },
    ],
    series: [
      {},
      ...lines.map(({ label, colour: name }) => ({
        label,
        stroke: colour(name),
        width: 1.5,
        // A line needs two points; one between two gaps would not be seen.
        points: { show: true, size: 4, fill: colour(name), filter: isolatedPoints },
      })),
    ],
    hooks: {
      setCursor: [
        ({ cursor: { idx, event } }) => {
          // New data, and the pointer in another chart, come without an event of their own.
          if (event === told) return;
          told = event;
          onCursor(idx ?? undefined);
        },
      ],
    },
  };
}

function isolatedPoints({ data }: uPlot, series: number): number[] {
  const values = data[series] ?? [];
  const isGap = (index: number): boolean => values[index] === null || values[index] === undefined;
  return Array.from(values.keys()).filter((index) => !isGap(index) && isGap(index - 1) && isGap(index + 1));
}

/** Returns the current value of a colour in style.css, in a form that a canvas accepts. */
function colourOf(place: HTMLElement, name: string): string {
  place.style.color = `var(--${name})`;
  return getComputedStyle(place).color;
}
