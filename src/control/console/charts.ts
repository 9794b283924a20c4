import uPlot from 'uplot';
import type { History, Point, SeriesName } from '../view.ts';
import { element, setText } from './dom.ts';

const HEIGHT = 132;
/** Number of points in a chart: as many as the gateway keeps. */
const POINTS = 180;
/** Time span of a chart at the start, and the longest one. */
const LEAST_SECONDS = 120;
const MOST_SECONDS = 900;

export interface Line {
  readonly series: SeriesName;
  readonly label: string;
  /** Name of a colour in style.css. */
  readonly colour: string;
}

export interface ChartOptions {
  readonly title: string;
  readonly deployment: string;
  readonly lines: readonly Line[];
  readonly format: (value: number) => string;
}

/** A chart of the last quarter of an hour. The legend shows the newest values, or those under the pointer. */
export class Chart {
  readonly element: HTMLElement;
  readonly #options: ChartOptions;
  readonly #canvas: HTMLElement;
  readonly #values: readonly HTMLElement[];
  readonly #observer: ResizeObserver;
  #plot: uPlot | undefined;
  #times: number[] = [];
  #columns: (number | null)[][];

  constructor(options: ChartOptions) {
    this.#options = options;
    const { title, deployment, lines } = options;
    this.#columns = lines.map(() => []);
    this.#canvas = element('div', {
      class: 'canvas',
      role: 'img',
      'aria-label': `${title} of ${deployment}, the last 15 minutes`,
    });
    this.#values = lines.map(() => element('b'));
    const keys = lines.map(({ label, colour }, index) =>
      element('span', { class: `key ${colour}` }, `${label} `, this.#values[index] ?? ''),
    );
    const caption = element('figcaption', {}, element('span', { class: 'title' }, title), ...keys);
    this.element = element('figure', {}, caption, this.#canvas);
    this.#observer = new ResizeObserver(() => this.#fit());
    this.#observer.observe(this.#canvas);
  }

  /** Replaces all points. */
  fill({ times, deployments }: History): void {
    const series = deployments[this.#options.deployment];
    this.#times = times.map((at) => at / 1000);
    this.#columns = this.#options.lines.map((line) => [...(series?.[line.series] ?? times.map(() => null))]);
    this.#show();
  }

  /** Appends the points of the next interval. */
  push(at: number, point: Point | undefined): void {
    if (at / 1000 <= (this.#times.at(-1) ?? 0)) return;
    this.#times.push(at / 1000);
    this.#options.lines.forEach(({ series }, index) => {
      this.#columns[index]?.push(point?.[series] ?? null);
    });
    if (this.#times.length > POINTS) {
      this.#times.shift();
      for (const column of this.#columns) column.shift();
    }
    this.#show();
  }

  /** Draws the chart again with the current colours. */
  repaint(): void {
    this.#plot?.destroy();
    this.#plot = undefined;
    this.#fit();
  }

  remove(): void {
    this.#observer.disconnect();
    this.#plot?.destroy();
  }

  get #data(): uPlot.AlignedData {
    return [this.#times, ...this.#columns] as uPlot.AlignedData;
  }

  #show(): void {
    this.#plot?.setData(this.#data);
    this.#tell(this.#times.length - 1);
  }

  #tell(index: number): void {
    this.#values.forEach((value, line) => {
      const number = this.#columns[line]?.[index];
      setText(value, number === null || number === undefined ? '–' : this.#options.format(number));
    });
  }

  #fit(): void {
    const { clientWidth: width } = this.#canvas;
    if (width === 0) return;
    if (this.#plot === undefined) this.#plot = new uPlot(this.#settings(width), this.#data, this.#canvas);
    else this.#plot.setSize({ width, height: HEIGHT });
  }

  #settings(width: number): uPlot.Options {
    const colour = (name: string): string => colourOf(this.#canvas, name);
    const { lines, format } = this.#options;
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
      cursor: { y: false, points: { size: 5 }, drag: { x: false, y: false } },
      padding: [6, 18, 0, 0],
      scales: {
        x: {
          range: (_plot, min, max) => [Math.max(max - MOST_SECONDS, Math.min(min, max - LEAST_SECONDS)), max],
        },
        y: { range: (_plot, _min, max) => [0, max > 0 ? max * 1.1 : 1] },
      },
      axes: [
        {
          ...axis,
          size: 22,
          space: 70,
          incrs: [60, 120, 300],
          values: (_plot, times) => times.map(hourAndMinute),
        },
        { ...axis, size: 46, space: 28, values: (_plot, values) => values.map(format) },
      ],
      series: [
        {},
        ...lines.map(({ label, colour: name }) => ({
          label,
          stroke: colour(name),
          width: 1.5,
          points: { show: false },
        })),
      ],
      hooks: {
        setCursor: [({ cursor }) => this.#tell(cursor.idx ?? this.#times.length - 1)],
      },
    };
  }
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
