import { keyOf, type MetricSample, type MetricSnapshot, type RegistrySnapshot } from './merged-metrics.ts';
import type { Exemplar } from './series.ts';

type Labels = NonNullable<MetricSample['sharedLabels']>;

/** AGGREGATION_TEMPORALITY_CUMULATIVE. */
const CUMULATIVE = 2;

/** An export of metrics. Times are in Unix milliseconds. */
export interface MetricsExportParts {
  /** Name of the instrumentation scope. */
  readonly scope: string;
  /** Attributes of the resource. */
  readonly resource: Labels;
  /** Since when counters and histograms count. */
  readonly started: number;
  readonly now: number;
  readonly metrics: RegistrySnapshot;
}

/**
 * An ExportMetricsServiceRequest in the JSON encoding of OTLP: 64-bit numbers as text, trace ids in hex. Metrics keep the
 * names of `/metrics`, and have no unit, which a receiver could append to the name.
 */
export function metricsRequest({ scope, resource, started, now, metrics }: MetricsExportParts) {
  const times = { startTimeUnixNano: nanoseconds(started), timeUnixNano: nanoseconds(now) };
  return {
    resourceMetrics: [
      {
        resource: { attributes: attributes(resource) },
        scopeMetrics: [
          { scope: { name: scope }, metrics: metrics.map((metric) => otlpMetric(metric, times)) },
        ],
      },
    ],
  };
}

interface Times {
  readonly startTimeUnixNano: string;
  readonly timeUnixNano: string;
}

function otlpMetric({ name, help, type, values }: MetricSnapshot, times: Times) {
  const described = { name, description: help };
  if (type === 'histogram') {
    const series = Map.groupBy(values, ({ sharedLabels = {} }) => keyOf(sharedLabels)).values();
    const dataPoints = Array.from(series, (samples) => histogramPoint(samples, times));
    return { ...described, histogram: { aggregationTemporality: CUMULATIVE, dataPoints } };
  }
  if (type === 'gauge') {
    const { timeUnixNano } = times;
    return {
      ...described,
      gauge: { dataPoints: values.map((sample) => numberPoint(sample, { timeUnixNano })) },
    };
  }
  const dataPoints = values.map((sample) => numberPoint(sample, times));
  return { ...described, sum: { aggregationTemporality: CUMULATIVE, isMonotonic: true, dataPoints } };
}

function numberPoint({ labels, value }: MetricSample, times: Partial<Times>) {
  return { attributes: attributes(labels), ...times, asDouble: double(value) };
}

/** Buckets of prom-client count the values of the buckets before them, too. */
function histogramPoint(samples: readonly MetricSample[], times: Times) {
  const isBucket = ({ labels }: MetricSample): boolean => 'le' in labels;
  const buckets = samples.filter(isBucket);
  const counts = buckets.map(({ value }, at) => value - (buckets[at - 1]?.value ?? 0));
  const bounds = buckets.flatMap(({ labels: { le } }) => (typeof le === 'number' ? [le] : []));
  const [sum] = samples.filter(({ metricName }) => metricName?.endsWith('_sum'));
  return {
    attributes: attributes(samples[0]?.sharedLabels ?? {}),
    ...times,
    count: String(buckets.at(-1)?.value ?? 0),
    sum: double(sum?.value ?? 0),
    bucketCounts: counts.map(String),
    explicitBounds: bounds,
    exemplars: buckets.flatMap(({ exemplar }) => (exemplar === undefined ? [] : [exemplarOf(exemplar)])),
  };
}

function exemplarOf({ labelSet: { trace_id: traceId, ...others }, value, timestamp }: Exemplar) {
  return {
    filteredAttributes: attributes(others),
    timeUnixNano: nanoseconds(timestamp * 1_000),
    asDouble: double(value),
    traceId,
  };
}

function attributes(labels: Labels) {
  return Object.entries(labels).map(([key, value]) => ({ key, value: { stringValue: String(value) } }));
}

/** JSON has no infinity; the encoding has it as text. */
function double(value: number): number | string {
  return Number.isFinite(value) ? value : String(value);
}

function nanoseconds(milliseconds: number): string {
  return `${BigInt(Math.trunc(milliseconds)) * 1_000_000n}`;
}
