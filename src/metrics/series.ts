import { type Counter, type Gauge, Histogram, type HistogramConfiguration } from 'prom-client';

type Labels<T extends string> = Readonly<Record<T, string>>;

/**
 * One series of a counter or gauge. It counts here and is added to its metric before that is read, because
 * prom-client builds a key of all labels for each change.
 */
export class Series {
  #pending = 0;
  #changed = false;

  /** `by`: below zero for a gauge only. */
  inc(by = 1): void {
    this.#pending += by;
    this.#changed = true;
  }

  /** Returns the sum since the last call and starts again at 0; undefined if `inc` was not called. */
  take(): number | undefined {
    if (!this.#changed) return undefined;
    const pending = this.#pending;
    this.#pending = 0;
    this.#changed = false;
    return pending;
  }
}

/** A counter or gauge with series for the request path. */
export type WithSeries<T extends string> = (Counter<T> | Gauge<T>) & {
  /** Creates a series, for the caller to keep. It appears in the metric after its first `inc`. */
  series(labels: Labels<T>): Series;
};

/** Adds the values of series to a counter or gauge whenever it is read. */
export function withSeries<T extends string>(metric: Counter<T> | Gauge<T>): WithSeries<T> {
  const all: [Labels<T>, Series][] = [];
  return Object.assign(metric, {
    series: (labels: Labels<T>): Series => {
      const series = new Series();
      all.push([labels, series]);
      return series;
    },
    // prom-client calls it before it reads the metric.
    collect: (): void => {
      for (const [labels, series] of all) {
        const sum = series.take();
        if (sum !== undefined) metric.inc(labels, sum);
      }
    },
  });
}

/** The time of the latest event of one series. A number of its own, since a Map would allocate one for each event. */
class LatestTime {
  /** Unix seconds. */
  at = 0;
}

/** A gauge with the time of the latest event by its label, for the request path. */
export type WithLatestTime<T extends string> = Gauge<T> & { readonly happened: (label: string) => void };

/** Sets the latest times in a gauge of one label, in Unix seconds, whenever it is read. */
export function withLatestTime<T extends string>(gauge: Gauge<T>): WithLatestTime<T> {
  const times = new Map<string, LatestTime>();
  const add = (value: string): LatestTime => {
    const time = new LatestTime();
    times.set(value, time);
    return time;
  };
  return Object.assign(gauge, {
    happened: (value: string): void => {
      const time = times.get(value) ?? add(value);
      time.at = Date.now() / 1000;
    },
    // prom-client calls it before it reads the metric.
    collect: (): void => {
      for (const [value, { at }] of times) gauge.labels(value).set(at);
    },
  });
}

/** Characters that the labels of an exemplar may have together, names included (OpenMetrics 1.0, Exemplars). */
const LONGEST_LABELS = 128;

/** A value with the trace and the request that it comes from. */
export interface Exemplar {
  /** Without `request_id` if the client chose one that is too long. */
  readonly labelSet: { readonly trace_id: string; readonly request_id?: string };
  readonly value: number;
  /** Unix seconds. */
  readonly timestamp: number;
}

/** One series of a histogram. */
export class HistogramSeries {
  readonly #bounds: readonly number[];
  /** Observations by bucket, not cumulative; the last bucket has no bound. */
  readonly #counts: number[];
  #exemplars: (Exemplar | undefined)[] | undefined;
  #sum = 0;
  #count = 0;

  /** `bounds`: upper bounds of the buckets, ascending. */
  constructor(bounds: readonly number[]) {
    this.#bounds = bounds;
    this.#counts = new Array(bounds.length + 1).fill(0);
  }

  /** With `traceId`, the trace and its request become the exemplar of the value's bucket. */
  observe(value: number, traceId?: string, requestId = ''): void {
    const bounds = this.#bounds;
    let bucket = 0;
    while (bucket < bounds.length && value > (bounds[bucket] ?? 0)) bucket += 1;
    this.#counts[bucket] = (this.#counts[bucket] ?? 0) + 1;
    this.#sum += value;
    this.#count += 1;
    if (traceId === undefined) return;
    this.#exemplars ??= [];
    const labelSet = exemplarLabels(traceId, requestId);
    this.#exemplars[bucket] = { labelSet, value, timestamp: Date.now() / 1000 };
  }

  /** Returns its values at this moment; undefined before the first observation. */
  values(labels: Labels<string>): HistogramValues | undefined {
    if (this.#count === 0) return undefined;
    const exemplars = this.#exemplars;
    return {
      labels,
      counts: [...this.#counts],
      sum: this.#sum,
      ...(exemplars && { exemplars: Array.from(this.#counts, (_, bucket) => exemplars[bucket] ?? null) }),
    };
  }
}

/**
 * One series of a histogram at one moment: one object and not one for each bucket, since it is copied, merged and sent to
 * another process, and thousands of deployments have 100,000 buckets.
 */
export interface HistogramValues {
  readonly labels: Labels<string>;
  /** Observations by bucket, not cumulative; the last bucket has no bound. */
  readonly counts: readonly number[];
  readonly sum: number;
  /** By bucket; null: it has none. Undefined: none has one. */
  readonly exemplars?: readonly (Exemplar | null)[];
}

/** A histogram at one moment. */
export interface HistogramSnapshot {
  /** Upper bounds of the buckets, ascending. */
  readonly bounds: readonly number[];
  readonly series: readonly HistogramValues[];
}

/** Returns a series as prom-client represents its values. */
export function histogramSamples(name: string, bounds: readonly number[], values: HistogramValues) {
  const { labels: sharedLabels, counts, sum, exemplars } = values;
  let cumulative = 0;
  const buckets = counts.map((count, bucket) => {
    cumulative += count;
    const le = bounds[bucket] ?? '+Inf';
    const exemplar = exemplars?.[bucket] ?? undefined;
    return { metricName: `${name}_bucket`, labels: { le }, sharedLabels, value: cumulative, exemplar };
  });
  return [
    ...buckets,
    { metricName: `${name}_sum`, labels: {}, sharedLabels, value: sum },
    { metricName: `${name}_count`, labels: {}, sharedLabels, value: cumulative },
  ];
}

function exemplarLabels(trace_id: string, request_id: string): Exemplar['labelSet'] {
  const length = 'trace_id'.length + trace_id.length + 'request_id'.length + request_id.length;
  return request_id === '' || length > LONGEST_LABELS ? { trace_id } : { trace_id, request_id };
}

/**
 * A histogram with series for the request path: prom-client builds a key of all labels for each observation,
 * and another one of its bucket's bound. Only what `series` observe is in it.
 */
export class SeriesHistogram<T extends string> extends Histogram<T> {
  readonly #configuration: SeriesHistogramConfiguration<T>;
  readonly #series: [Labels<T>, HistogramSeries][] = [];

  constructor(configuration: SeriesHistogramConfiguration<T>) {
    super(configuration);
    this.#configuration = configuration;
  }

  /** Creates a series, for the caller to keep. It appears in the metric after its first observation. */
  series(labels: Labels<T>): HistogramSeries {
    const series = new HistogramSeries(this.#configuration.buckets);
    this.#series.push([labels, series]);
    return series;
  }

  /** Returns its series at this moment. */
  snapshot(): HistogramSnapshot {
    const series = this.#series.flatMap(([labels, each]) => each.values(labels) ?? []);
    return { bounds: this.#configuration.buckets, series };
  }

  /** Replaces a method of prom-client from which it makes both its text and the result of `get`. */
  async getForPromString() {
    const { name, help } = this.#configuration;
    const { bounds, series } = this.snapshot();
    const values = series.flatMap((each) => histogramSamples(name, bounds, each));
    return { name, help, type: 'histogram', aggregator: 'sum', values };
  }
}

interface SeriesHistogramConfiguration<T extends string> extends HistogramConfiguration<T> {
  /** Upper bounds, ascending. */
  readonly buckets: number[];
}
