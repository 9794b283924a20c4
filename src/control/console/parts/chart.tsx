import { useEffect, useRef } from 'preact/hooks';
import uPlot from 'uplot';
import { colours } from './theme.tsx';

const HEIGHT = 150;

export interface Line {
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
    padding: [6, 18, 0, 0],
    scales: {
      x: {
        range: (_plot, min, max) => [Math.max(max - seconds, Math.min(min, max - seconds / 8)), max],
      },
      y: { range: (_plot, _min, max) => [0, max > 0 ? max * 1.1 : 1] },
    },
    axes: [
      {
        ...axis,
        size: 22,
        space: 70,
        incrs: [60, 120, 300, 900, 1800, 3600, 7200, 14_400, 21_600],
        values: (_plot, times) => times.map(hourAndMinute),
      },
      { ...axis, size: 50, space: 28, values: (_plot, values) => values.map(format) },
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

const shortTime = new Intl.DateTimeFormat('en-GB', { timeStyle: 'short' });

function hourAndMinute(seconds: number): string {
  return shortTime.format(seconds * 1000);
}
