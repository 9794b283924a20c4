import { type Metric, Registry, type RegistryContentType } from 'prom-client';
import {
  type MetricSample,
  type MetricSnapshot,
  mergeSnapshots,
  type RegistrySnapshot,
  takeSnapshot,
} from './registry-snapshot.ts';

/** The text of `/metrics`. */
export interface MetricsText {
  readonly contentType: string;
  readonly text: string;
}

/** The text format of Prometheus, or OpenMetrics, which has exemplars, too. */
export type MetricsFormat = 'prometheus' | 'openmetrics';

/** Values by the name of their metric. */
export type MetricValues = ReadonlyMap<string, readonly MetricSample[]>;

/**
 * The metrics of this process and of its workers as one; without workers, those of this process. Each metric
 * has the rule by which values of several processes become one.
 */
export class MergedMetrics {
  readonly #own: Registry<RegistryContentType>;
  /** The latest values of each worker, by metric. */
  readonly #workers = new Map<number, Map<string, MetricSnapshot>>();
  /** The counts of all workers that have ended. */
  #ended: RegistrySnapshot = [];

  constructor(own: Registry<RegistryContentType>) {
    this.#own = own;
  }

  /** Replaces the values of a worker; metrics that are not in the snapshot keep theirs. */
  set(worker: number, snapshot: RegistrySnapshot): void {
    const latest = this.#workers.get(worker) ?? new Map<string, MetricSnapshot>();
    for (const metric of snapshot) latest.set(metric.name, metric);
    this.#workers.set(worker, latest);
  }

  /**
   * Removes a worker that has ended, after its last snapshot. Its counters and histograms stay in the sums, so
   * that no counter falls; its gauges do not. Another worker may have the same number afterwards.
   */
  ended(worker: number): void {
    const latest = this.#workers.get(worker);
    if (latest === undefined) return;
    this.#workers.delete(worker);
    const counts = [...latest.values()].filter(({ type }) => type !== 'gauge');
    this.#ended = mergeSnapshots([this.#ended, counts]);
  }

  /** Returns the values of these metrics. */
  async values(names: readonly string[]): Promise<MetricValues> {
    const merged = this.#merge(await takeSnapshot(this.#own, names), names);
    return new Map(merged.map(({ name, values }) => [name, values]));
  }

  /** Returns all metrics. */
  async snapshot(): Promise<RegistrySnapshot> {
    return this.#merge(await takeSnapshot(this.#own));
  }

  /** Returns all metrics as text. */
  async text(format: MetricsFormat): Promise<MetricsText> {
    const isOpenMetrics = format === 'openmetrics';
    const contentType = isOpenMetrics ? Registry.OPENMETRICS_CONTENT_TYPE : Registry.PROMETHEUS_CONTENT_TYPE;
    const registry = new Registry<RegistryContentType>();
    registry.setContentType(contentType);
    for (const metric of await this.snapshot()) {
      // In OpenMetrics, prom-client appends `_total` to the name of a counter whether or not it has it.
      const isCounter = isOpenMetrics && metric.type === 'counter';
      const named = isCounter ? { ...metric, name: metric.name.replace(/_total$/, '') } : metric;
      registry.registerMetric({ ...named, get: () => named } as unknown as Metric);
    }
    return { contentType, text: await registry.metrics() };
  }

  /** This process comes first, because of metrics that only it tells. `names`: only these metrics. */
  #merge(own: RegistrySnapshot, names?: readonly string[]): RegistrySnapshot {
    const wanted = (metrics: Iterable<MetricSnapshot>): RegistrySnapshot =>
      names === undefined ? [...metrics] : [...metrics].filter(({ name }) => names.includes(name));
    const workers = Array.from(this.#workers.values(), (latest) => wanted(latest.values()));
    const others = [wanted(this.#ended), ...workers].filter(({ length }) => length > 0);
    return mergeSnapshots([own, ...others]);
  }
}
