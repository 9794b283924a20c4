import { Counter, Gauge } from 'prom-client';

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

/** The series of one metric. */
class SeriesList<T extends string> {
  readonly #all: [Labels<T>, Series][] = [];

  add(labels: Labels<T>): Series {
    const series = new Series();
    this.#all.push([labels, series]);
    return series;
  }

  addTo(metric: Counter<T> | Gauge<T>): void {
    for (const [labels, series] of this.#all) {
      const sum = series.take();
      if (sum !== undefined) metric.inc(labels, sum);
    }
  }
}

/** A counter with series for the request path. */
export class SeriesCounter<T extends string> extends Counter<T> {
  readonly #series = new SeriesList<T>();

  /** Creates a series, for the caller to keep. It appears in the metric after its first `inc`. */
  series(labels: Labels<T>): Series {
    return this.#series.add(labels);
  }

  /** prom-client calls it before it reads the metric. */
  collect(): void {
    this.#series.addTo(this);
  }
}

/** A gauge with series for the request path. */
export class SeriesGauge<T extends string> extends Gauge<T> {
  readonly #series = new SeriesList<T>();

  /** Creates a series, for the caller to keep. It appears in the metric after its first `inc`. */
  series(labels: Labels<T>): Series {
    return this.#series.add(labels);
  }

  /** prom-client calls it before it reads the metric. */
  collect(): void {
    this.#series.addTo(this);
  }
}
