import { deploymentInterval, pointOf } from './interval.ts';
import type { Totals } from './totals.ts';
import type { History, Point, Series, SeriesName } from './view.ts';

/** Five seconds each: a quarter of an hour. */
const POINTS = 180;
/** Samples that are kept whole, for rates of the last minute. */
const SAMPLES = 13;
const NAMES: readonly SeriesName[] = ['requests', 'errors', 'challenges', 'p50', 'p95', 'p99'];

interface PointAt {
  readonly at: number;
  readonly deployments: Readonly<Record<string, Point>>;
}

/** The last quarter of an hour in numbers, from samples of the metrics. Its memory is bounded. */
export class Sampler {
  readonly #read: () => Promise<Totals>;
  readonly #onError: (error: unknown) => void;
  readonly #samples: Totals[] = [];
  readonly #points: PointAt[] = [];
  readonly #timer: NodeJS.Timeout;

  /** Takes a sample every so many milliseconds. */
  constructor(read: () => Promise<Totals>, everyMs: number, onError: (error: unknown) => void) {
    this.#read = read;
    this.#onError = onError;
    this.#timer = setInterval(() => void this.#sample(), everyMs).unref();
    void this.#sample();
  }

  /** Totals as they are now. */
  now(): Promise<Totals> {
    return this.#read();
  }

  /** The youngest sample that is at least so many milliseconds older than `now`, or the oldest there is. */
  before(now: Totals, ms: number): Totals {
    return this.#samples.findLast(({ at }) => at <= now.at - ms) ?? this.#samples[0] ?? now;
  }

  /** Points whose interval ended after this moment. */
  since(at: number): readonly PointAt[] {
    const index = this.#points.findIndex((point) => point.at > at);
    return index < 0 ? [] : this.#points.slice(index);
  }

  history(): History {
    const deployments = new Set(this.#points.flatMap((point) => Object.keys(point.deployments)));
    return {
      times: this.#points.map(({ at }) => at),
      deployments: Object.fromEntries(Array.from(deployments, (name) => [name, this.#seriesOf(name)])),
    };
  }

  close(): void {
    clearInterval(this.#timer);
  }

  #seriesOf(deployment: string): Series {
    const points = this.#points.map((point) => point.deployments[deployment]);
    const seriesOf = (name: SeriesName) => points.map((point) => point?.[name] ?? null);
    return Object.fromEntries(NAMES.map((name) => [name, seriesOf(name)])) as Record<
      SeriesName,
      (number | null)[]
    >;
  }

  async #sample(): Promise<void> {
    try {
      const sample = await this.#read();
      const last = this.#samples.at(-1);
      this.#samples.push(sample);
      if (this.#samples.length > SAMPLES) this.#samples.shift();
      if (last === undefined || last.at >= sample.at) return;
      this.#points.push({ at: sample.at, deployments: pointsBetween(last, sample) });
      if (this.#points.length > POINTS) this.#points.shift();
    } catch (error) {
      this.#onError(error);
    }
  }
}

function pointsBetween(last: Totals, sample: Totals): Record<string, Point> {
  const points: Record<string, Point> = {};
  for (const [name, totals] of sample.deployments) {
    const before = last.deployments.get(name);
    points[name] = pointOf(deploymentInterval(before, totals, sample.at - last.at));
  }
  return points;
}
