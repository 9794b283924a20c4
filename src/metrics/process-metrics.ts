import { collectDefaultMetrics, Gauge, type Registry, type RegistryContentType } from 'prom-client';
import { LONGEST_TIMER_MS } from '../base/clock.ts';
import { maxOpenFiles, openFiles } from '../base/open-files.ts';

/**
 * Gauges of prom-client that are named like counters, which Prometheus' linter reports; each has a
 * correctly named twin.
 */
const MISNAMED = [
  'nodejs_active_handles_total',
  'nodejs_active_requests_total',
  'nodejs_active_resources_total',
];
/**
 * Rules of prom-client's metrics that do not add up: the event loop that is blocked the most, and the start of the
 * process that has the control plane.
 */
const DEFAULT_METRICS: Readonly<Record<string, 'min' | 'max' | 'first'>> = {
  nodejs_eventloop_lag_seconds: 'max',
  nodejs_eventloop_lag_min_seconds: 'min',
  nodejs_eventloop_lag_max_seconds: 'max',
  nodejs_eventloop_lag_mean_seconds: 'max',
  nodejs_eventloop_lag_stddev_seconds: 'max',
  nodejs_eventloop_lag_p50_seconds: 'max',
  nodejs_eventloop_lag_p90_seconds: 'max',
  nodejs_eventloop_lag_p99_seconds: 'max',
  nodejs_version_info: 'first',
  process_start_time_seconds: 'first',
};
const LOOP_METRICS = Object.keys(DEFAULT_METRICS).filter((name) => name.startsWith('nodejs_eventloop_lag'));

/**
 * Adds prom-client's metrics of the process. `withLoop`: measures the delays of the event loop, which wakes the process a
 * hundred times a second and takes most of the CPU time of one that serves no requests.
 */
export function collectProcessMetrics(registry: Registry<RegistryContentType>, withLoop: boolean): void {
  const precision = withLoop ? {} : { eventLoopMonitoringPrecision: LONGEST_TIMER_MS };
  collectDefaultMetrics({ register: registry, ...precision });
  for (const name of MISNAMED) registry.removeSingleMetric(name);
  if (!withLoop) {
    for (const name of LOOP_METRICS) registry.removeSingleMetric(name);
  }
  for (const metric of registry.getMetricsAsArray()) {
    metric.aggregator = DEFAULT_METRICS[metric.name] ?? metric.aggregator;
  }
  countOpenFiles(registry);
}

const OPEN = 'process_open_fds';

/**
 * Replaces prom-client's count of open files, which it has on Linux, by one that also sets their share in those that the
 * process may open: to count 10,000 takes 10 ms. Sums of several processes would hide one that has none left.
 */
function countOpenFiles(registry: Registry<RegistryContentType>): void {
  const counted = registry.getSingleMetric(OPEN);
  if (counted === undefined) return;
  registry.removeSingleMetric(OPEN);
  const max = maxOpenFiles();
  const ratio = new Gauge({
    name: 'digest_gateway_open_files_ratio',
    help: 'Open files by those that the process may open; with workers, of the process with the largest share',
    registers: [],
    aggregator: 'max',
  });
  const open = new Gauge({
    name: OPEN,
    help: 'Number of open file descriptors.',
    registers: [],
    collect() {
      const count = openFiles(max);
      this.set(count);
      ratio.set(count / max);
    },
  });
  // In the order in which they are read.
  registry.registerMetric(open);
  registry.registerMetric(ratio);
}
