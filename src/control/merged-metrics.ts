import { type Metric, Registry, type RegistryContentType } from 'prom-client';
import { type Pause, runAtOnce, runBetween, type Steps, slices } from '../base/steps.ts';
import { CLIENT_LAST_SEEN, type MergeRule } from '../metrics/metrics.ts';
import {
  type Exemplar,
  type HistogramSnapshot,
  type HistogramValues,
  histogramSamples,
  SeriesHistogram,
} from '../metrics/series.ts';

type Labels = Readonly<Record<string, string | number>>;

/** One value of a metric, as prom-client represents it. */
interface MetricSample {
  /** Name of the series if it is not that of the metric, such as `…_bucket`. */
  readonly metricName?: string;
  readonly labels: Labels;
  /** Labels of a histogram's series, one object for all its values; `labels` has the bound of the bucket only. */
  readonly sharedLabels?: Labels;
  readonly value: number;
  readonly exemplar?: Exemplar | undefined;
}

/** A metric with its values at one moment. */
interface MetricSnapshot {
  readonly name: string;
  readonly help: string;
  readonly type: 'counter' | 'gauge' | 'histogram';
  readonly aggregator: MergeRule;
  /** Empty if it has `histogram`. */
  readonly values: readonly MetricSample[];
  /** The values of a histogram that requests change. */
  readonly histogram?: HistogramSnapshot;
}

/** The metrics of one process at one moment: plain data that can be sent to another process. */
export type RegistrySnapshot = readonly MetricSnapshot[];

function outlivesProcess({ name, type }: Pick<MetricSnapshot, 'name' | 'type'>): boolean {
  return type !== 'gauge' || name === CLIENT_LAST_SEEN;
}

/** Returns the names of the metrics whose values must outlive their process: counters, histograms, the latest times. */
export function countNames(registry: Registry<RegistryContentType>): string[] {
  const metrics = registry.getMetricsAsArray() as unknown as Pick<MetricSnapshot, 'name' | 'type'>[];
  return metrics.filter(outlivesProcess).map(({ name }) => name);
}

/**
 * Reads a registry; requests are served meanwhile, because thousands of deployments have 100,000 values. `names`: only
 * these metrics, as far as it has them; undefined: all.
 */
export async function takeSnapshot(
  registry: Registry<RegistryContentType>,
  names: readonly string[] = namesOf(registry),
): Promise<RegistrySnapshot> {
  const pause = slices();
  const snapshots: MetricSnapshot[] = [];
  for (const name of names) {
    const metric = await readMetric(registry, name);
    if (metric !== undefined) snapshots.push(metric);
    await pause();
  }
  return snapshots;
}

function namesOf(registry: Registry<RegistryContentType>): string[] {
  return registry.getMetricsAsArray().map(({ name }) => name);
}

async function readMetric(
  registry: Registry<RegistryContentType>,
  name: string,
): Promise<MetricSnapshot | undefined> {
  const metric = registry.getSingleMetric(name);
  if (metric === undefined) return undefined;
  if (metric instanceof SeriesHistogram) {
    const { help } = metric as unknown as { readonly help: string };
    return { name, help, type: 'histogram', aggregator: 'sum', values: [], histogram: metric.snapshot() };
  }
  return copyOf((await metric.get()) as unknown as MetricSnapshot);
}

/** prom-client changes its values in place, and represents what is absent as undefined or null. */
function copyOf({ name, help, type, aggregator, values }: MetricSnapshot): MetricSnapshot {
  const copies: MetricSample[] = [];
  for (const { metricName, labels, value } of values) {
    // The mean of nothing is NaN, which would become the maximum of all processes.
    if (Number.isNaN(value)) continue;
    copies.push(metricName === undefined ? { labels, value } : { metricName, labels, value });
  }
  return { name, help, type, aggregator, values: copies };
}

const MERGED: Readonly<Record<MergeRule, (value: number, other: number) => number>> = {
  sum: (value, other) => value + other,
  min: Math.min,
  max: Math.max,
  first: (value) => value,
};

/** A sample while the values of several processes are merged. */
type MergedSample = { -readonly [Key in keyof MetricSample]: MetricSample[Key] };

/**
 * Merges one metric of several processes by its rule; undefined: none of them has it. prom-client's own aggregation
 * loses exemplars, and makes a key of all labels for each bucket.
 */
function* mergeMetric(metrics: readonly MetricSnapshot[]): Steps<MetricSnapshot | undefined> {
  const [first] = metrics;
  if (first === undefined || metrics.length === 1) return first;
  if (first.histogram !== undefined) {
    return {
      ...first,
      histogram: yield* mergeHistogram(metrics.flatMap(({ histogram }) => histogram ?? [])),
    };
  }
  const merged = MERGED[first.aggregator];
  const byKey = new Map<string, MergedSample>();
  for (const { values } of metrics) {
    for (const sample of values) {
      yield;
      const key = `${sample.metricName ?? ''}\0${keyOf(sample.labels)}`;
      const known = byKey.get(key);
      if (known === undefined) byKey.set(key, { ...sample });
      else known.value = merged(known.value, sample.value);
    }
  }
  return { ...first, values: [...byKey.values()] };
}

function* mergeHistogram(histograms: readonly HistogramSnapshot[]): Steps<HistogramSnapshot> {
  const byKey = new Map<string, HistogramValues>();
  for (const { series } of histograms) {
    for (const each of series) {
      yield;
      const key = keyOf(each.labels);
      const known = byKey.get(key);
      byKey.set(key, known === undefined ? each : sumOf(known, each));
    }
  }
  return { bounds: histograms[0]?.bounds ?? [], series: [...byKey.values()] };
}

function sumOf(a: HistogramValues, b: HistogramValues): HistogramValues {
  const counts = a.counts.map((count, bucket) => count + (b.counts[bucket] ?? 0));
  const { labels } = a;
  const sum = a.sum + b.sum;
  if (a.exemplars === undefined && b.exemplars === undefined) return { labels, counts, sum };
  const exemplars = counts.map((_, bucket) => laterOf(a.exemplars?.[bucket], b.exemplars?.[bucket]));
  return { labels, counts, sum, exemplars };
}

function laterOf(a: Exemplar | null = null, b: Exemplar | null = null): Exemplar | null {
  return a === null || (b !== null && b.timestamp > a.timestamp) ? b : a;
}

/** Returns the same text for the same labels in any order. No label has a NUL: they are names of the configuration. */
function keyOf(labels: Labels): string {
  const names = Object.keys(labels);
  if (names.length > 1) names.sort();
  let key = '';
  for (const name of names) key += `${name}\0${labels[name]}\0`;
  return key;
}

/** The text of `/metrics`. */
export interface MetricsText {
  readonly contentType: string;
  /** Each is made when it is read, in a few milliseconds; the whole of thousands of deployments has megabytes. */
  readonly pieces: AsyncIterable<string>;
}

/** The text format of Prometheus, or OpenMetrics, which has exemplars, too. */
export type MetricsFormat = 'prometheus' | 'openmetrics';

/** Metrics by their name. */
export type MetricValues = ReadonlyMap<string, MetricSnapshot>;

type Latest = Map<string, MetricSnapshot>;

/**
 * The metrics of this process and of its workers as one; without workers, those of this process. Each metric
 * has the rule by which values of several processes become one.
 */
export class MergedMetrics {
  readonly #own: Registry<RegistryContentType>;
  /** The latest values of each worker, by metric. */
  readonly #workers = new Map<number, Latest>();
  /** The counts of all workers that have ended, by metric. */
  readonly #ended: Latest = new Map();

  constructor(own: Registry<RegistryContentType>) {
    this.#own = own;
  }

  /** Replaces the values of a worker; metrics that are not in the snapshot keep theirs. */
  set(worker: number, snapshot: RegistrySnapshot): void {
    const latest: Latest = this.#workers.get(worker) ?? new Map();
    for (const metric of snapshot) latest.set(metric.name, metric);
    this.#workers.set(worker, latest);
  }

  /**
   * Removes a worker that has ended, after its last snapshot. Its counters and histograms stay in the sums, so
   * that no counter falls, and so does when it saw clients; its other gauges do not. Another worker may have the same
   * number afterwards.
   */
  ended(worker: number): void {
    const latest = this.#workers.get(worker) ?? new Map();
    this.#workers.delete(worker);
    for (const [name, metric] of latest) {
      if (!outlivesProcess(metric)) continue;
      const counted = this.#ended.get(name);
      const sum = counted === undefined ? metric : runAtOnce(mergeMetric([counted, metric]));
      if (sum !== undefined) this.#ended.set(name, sum);
    }
  }

  /** Returns the values of these metrics; requests are served meanwhile. */
  async values(names: readonly string[]): Promise<MetricValues> {
    const pause = slices();
    const values = new Map<string, MetricSnapshot>();
    for (const name of names) {
      const metric = await this.#read(name, pause);
      if (metric !== undefined) values.set(name, metric);
    }
    return values;
  }

  /** Returns all metrics as text. */
  text(format: MetricsFormat): MetricsText {
    const isOpenMetrics = format === 'openmetrics';
    const contentType = isOpenMetrics ? Registry.OPENMETRICS_CONTENT_TYPE : Registry.PROMETHEUS_CONTENT_TYPE;
    return { contentType, pieces: this.#pieces(contentType) };
  }

  async *#pieces(contentType: RegistryContentType): AsyncGenerator<string> {
    const pause = slices();
    const isOpenMetrics = contentType === Registry.OPENMETRICS_CONTENT_TYPE;
    const registry = new Registry<RegistryContentType>();
    registry.setContentType(contentType);
    const others = [this.#ended, ...this.#workers.values()];
    const names = new Set([...namesOf(this.#own), ...others.flatMap((latest) => [...latest.keys()])]);
    for (const name of names) {
      const metric = await this.#read(name, pause);
      if (metric === undefined) continue;
      // In OpenMetrics, prom-client appends `_total` to the name of a counter whether or not it has it.
      const isCounter = isOpenMetrics && metric.type === 'counter';
      const named = isCounter ? { ...metric, name: name.replace(/_total$/, '') } : metric;
      let isFirst = true;
      for (const samples of piecesOf(metric)) {
        await pause();
        const piece = { ...named, values: samples.map(withSharedLabels) };
        registry.clear();
        registry.registerMetric({ ...named, get: () => piece } as unknown as Metric);
        const text = await registry.getSingleMetricAsString(named.name);
        yield `${isFirst ? text : text.replace(HEADER, '')}\n`;
        isFirst = false;
      }
    }
    if (isOpenMetrics) yield '# EOF\n';
  }

  /** This process comes first, because of metrics that only it has. Undefined: no process has this metric. */
  async #read(name: string, pause: Pause): Promise<MetricSnapshot | undefined> {
    const own = await readMetric(this.#own, name);
    const others = [this.#ended, ...this.#workers.values()].map((latest) => latest.get(name));
    return runBetween(mergeMetric([own, ...others].filter((metric) => metric !== undefined)), pause);
  }
}

/** Values of a metric that become text at once, and series of a histogram, which have 20. */
const PIECE = 1_000;
const HISTOGRAM_PIECE = 50;
/** The lines `# HELP` and `# TYPE`. */
const HEADER = /^(#.*\n){2}/;

const NO_LABELS: Labels = {};

/** prom-client keeps what it has made of shared labels, also of the new ones that it makes where there are none. */
function withSharedLabels(sample: MetricSample): MetricSample {
  return sample.sharedLabels === undefined ? { ...sample, sharedLabels: NO_LABELS } : sample;
}

/** Yields the values of a metric in pieces; at least one, which may be empty. */
export function* piecesOf({ name, values, histogram }: MetricSnapshot): Generator<readonly MetricSample[]> {
  if (histogram === undefined) {
    for (let from = 0; from === 0 || from < values.length; from += PIECE)
      yield values.slice(from, from + PIECE);
    return;
  }
  const { bounds, series } = histogram;
  for (let from = 0; from === 0 || from < series.length; from += HISTOGRAM_PIECE) {
    const piece = series.slice(from, from + HISTOGRAM_PIECE);
    yield piece.flatMap((each) => histogramSamples(name, bounds, each));
  }
}
