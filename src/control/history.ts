import { intervalOf, intervalOfAll, pointOf, round, sharedWith, type Totals } from './totals.ts';
import { type History, type Point, type Range, SERIES, type Series, type Sparklines } from './view.ts';

/**
 * Samples that make a point, and points that are kept. With a sample every five seconds: a quarter of an hour,
 * three hours, a day.
 */
const RINGS = {
  '15m': { samples: 1, points: 180 },
  '3h': { samples: 12, points: 180 },
  '24h': { samples: 60, points: 288 },
} as const satisfies Record<Range, { samples: number; points: number }>;

/** In place of a name, all deployments together. No deployment has this name. */
const ALL = '*';

/** Points of a sparkline are means of this many points of the shortest range. */
const SPARK = 4;

/**
 * Keeps the charts of every deployment in bounded memory. The percentiles of a longer interval are computed from the
 * histogram's growth over it: means of percentiles would say nothing.
 */
export class Histories {
  #rings = emptyRings();
  /** Totals at the start of the running interval. */
  readonly #begun = new Map<Range, Totals>();
  #samples = 0;
  #last: Totals | undefined;

  /** Adds a sample. After one that is not later than the one before, the charts begin again. */
  add(sample: Totals): void {
    if (this.#last !== undefined && this.#last.at >= sample.at) {
      // The clock of the host was set back: the times of a chart must ascend.
      this.#rings = emptyRings();
      this.#begun.clear();
      this.#samples = 0;
    }
    this.#last = sample;
    for (const [range, ring] of Object.entries(this.#rings) as [Range, Ring][]) {
      const begun = this.#begun.get(range);
      if (begun === undefined) this.#begun.set(range, sample);
      else if (this.#samples % RINGS[range].samples === 0) {
        ring.push(sample.at, pointsBetween(begun, sample));
        this.#begun.set(range, sample);
      }
    }
    this.#samples += 1;
  }

  /** Returns the points of a deployment; the last one may be of an interval that has not ended. */
  read(deployment: string, range: Range): History {
    const { times, series } = this.#rings[range].read(deployment);
    const begun = this.#begun.get(range);
    const last = this.#last;
    if (begun !== undefined && last !== undefined && begun.at < last.at) {
      times.push(last.at);
      const point = pointsBetween(begun, last).get(deployment);
      for (const name of SERIES) series[name].push(point?.[name] ?? null);
    }
    return { times, series };
  }

  /** Returns rates of every deployment over the shortest range, with fewer points. */
  sparklines(): Sparklines {
    return { deployments: this.#rings['15m'].sparklines(), total: this.read(ALL, '15m') };
  }
}

function emptyRings(): Record<Range, Ring> {
  return {
    '15m': new Ring(RINGS['15m'].points),
    '3h': new Ring(RINGS['3h'].points),
    '24h': new Ring(RINGS['24h'].points),
  };
}

function pointsBetween(begun: Totals, ended: Totals): Map<string, Point> {
  const points = Array.from(ended.deployments.keys(), (name): [string, Point] => [
    name,
    pointOf(intervalOf(name, begun, ended)),
  ]);
  return new Map([...points, [ALL, pointOf(intervalOfAll(begun, ended))]]);
}

type Columns = { -readonly [Name in keyof Series]: (number | null)[] };

/** The last points of every deployment, in typed arrays. NaN: there is no value. */
class Ring {
  readonly #length: number;
  readonly #times: Float64Array;
  readonly #columns = new Map<string, Float32Array>();
  /** Points so far. */
  #count = 0;

  constructor(length: number) {
    this.#length = length;
    this.#times = new Float64Array(length);
  }

  push(at: number, points: ReadonlyMap<string, Point>): void {
    const slot = this.#count % this.#length;
    this.#times[slot] = at;
    for (const name of points.keys()) {
      if (!this.#columns.has(name)) {
        this.#columns.set(name, new Float32Array(this.#length * SERIES.length).fill(Number.NaN));
      }
    }
    for (const [name, column] of this.#columns) {
      const point = points.get(name);
      for (const [index, series] of SERIES.entries()) {
        column[slot * SERIES.length + index] = point?.[series] ?? Number.NaN;
      }
      // Reloads must not collect deployments that are gone.
      if (point === undefined && column.every(Number.isNaN)) this.#columns.delete(name);
    }
    this.#count += 1;
  }

  read(deployment: string): { times: number[]; series: Columns } {
    const slots = this.#slots();
    const column = this.#columns.get(deployment);
    const valuesOf = (index: number) => slots.map((slot) => valueAt(column, slot * SERIES.length + index));
    return {
      times: slots.map((slot) => this.#times[slot] ?? 0),
      series: Object.fromEntries(SERIES.map((name, index) => [name, valuesOf(index)])) as Columns,
    };
  }

  sparklines(): Sparklines['deployments'] {
    const groups = this.#groups();
    const own = Array.from(this.#columns).filter(([name]) => name !== ALL);
    const deployments = own.map(([name, column]) => {
      const rateOf = (series: readonly (typeof SERIES)[number][]) =>
        groups.map((slots) => meanRate(column, slots, series));
      return [name, { requests: rateOf(['2xx', '3xx', '4xx', '5xx']), errors: rateOf(['5xx']) }] as const;
    });
    return Object.fromEntries(deployments);
  }

  /** Returns the slots in use, the oldest first. */
  #slots(): number[] {
    const used = Math.min(this.#count, this.#length);
    return Array.from({ length: used }, (_, index) => (this.#count - used + index) % this.#length);
  }

  /** The same in groups, whose borders stay where they are when points are added. */
  #groups(): number[][] {
    const first = Math.max(0, this.#count - this.#length);
    const groups = Map.groupBy(this.#slots().entries(), ([index]) => Math.floor((first + index) / SPARK));
    return Array.from(groups.values(), (entries) => entries.map(([, slot]) => slot));
  }
}

function valueAt(column: Float32Array | undefined, index: number): number | null {
  const value = column?.[index] ?? Number.NaN;
  return Number.isNaN(value) ? null : round(value);
}

/** Returns the mean of a sum of series; null if there is no value. */
function meanRate(
  column: Float32Array,
  slots: readonly number[],
  series: readonly (typeof SERIES)[number][],
): number | null {
  const sums = slots.flatMap((slot) => {
    const values = series.map((name) => column[slot * SERIES.length + SERIES.indexOf(name)] ?? Number.NaN);
    const sum = values.reduce((total, value) => total + value, 0);
    return Number.isNaN(sum) ? [] : [sum];
  });
  return sums.length === 0 ? null : round(sums.reduce((total, sum) => total + sum, 0) / sums.length);
}

/** Samples that are kept for rates of the last minute. */
const SAMPLES = 13;

/** Samples the metrics, for rates of the last minute and for the charts. Its memory is bounded. */
export class Sampler {
  readonly histories = new Histories();
  readonly #read: () => Promise<Totals>;
  readonly #onError: (error: unknown) => void;
  readonly #samples: Totals[] = [];
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

  close(): void {
    clearInterval(this.#timer);
  }

  async #sample(): Promise<void> {
    try {
      const sample = sharedWith(this.#samples.at(-1), await this.#read());
      this.#samples.push(sample);
      if (this.#samples.length > SAMPLES) this.#samples.shift();
      this.histories.add(sample);
    } catch (error) {
      this.#onError(error);
    }
  }
}
