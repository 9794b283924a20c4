import { deploymentInterval, pointOf } from './interval.ts';
import type { Totals } from './totals.ts';
import type { History, Point, Series, SeriesName } from './view.ts';

/** A quarter of an hour at five seconds each. */
const POINTS = 180;
/** Samples that are kept for rates of the last minute. */
const SAMPLES = 13;
const NAMES: readonly SeriesName[] = ['requests', 'errors', 'challenges', 'p50', 'p95', 'p99'];

interface PointAt {
  readonly at: number;
  readonly deployments: Readonly<Record<string, Point>>;
}

/** Samples the metrics and keeps a quarter of an hour of points. Its memory is bounded. */
export class Sampler {
  readonly #read: () => Promise<Totals>;
  readonly #onError: (error: unknown) => void;
  readonly #samples: Totals[] = [];
  readonly #points: PointAt[] = [];
  readonly #timer: NodeJS.Timeout;

  /** @param everyMs sampling interval in milliseconds */
  constructor(read: () => Promise<Totals>, everyMs: number, onError: (error: unknown) => void) {
    this.#read = read;
    this.#onError = onError;
    this.#timer = setInterval(() => void this.#sample(), everyMs).unref();
    void this.#sample();
  }

  /** Reads the current totals. */
  now(): Promise<Totals> {
    return this.#read();
  }

  /** Returns the latest sample that is at least `ms` milliseconds older than `now`, or the oldest one. */
  before(now: Totals, ms: number): Totals {
    return this.#samples.findLast(({ at }) => at <= now.at - ms) ?? this.#samples[0] ?? now;
  }

  /** Returns the points whose interval ended after this time. */
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
