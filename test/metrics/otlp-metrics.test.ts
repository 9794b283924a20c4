import { expect, test } from '@jest/globals';
import { JsonMetricsSerializer } from '@opentelemetry/otlp-transformer';
import { MergedMetrics, type RegistrySnapshot } from '../../src/metrics/merged-metrics.ts';
import { Metrics } from '../../src/metrics/metrics.ts';
import { metricsRequest } from '../../src/metrics/otlp-metrics.ts';
import { metricsOf, seriesOfExport, seriesOfText } from '../support/otlp-receiver.ts';

type ResourceMetrics = Parameters<typeof JsonMetricsSerializer.serializeRequest>[0];
type HrTime = [number, number];

const TRACE = '0af7651916cd43dd8448eb211c80319c';
const STARTED = Date.parse('2026-01-02T03:04:05.678Z');
const NOW = STARTED + 60_000;
const hrTime = (time: number): HrTime => [Math.trunc(time / 1_000), (time % 1_000) * 1_000_000];

const requestOf = (metrics: RegistrySnapshot) =>
  metricsRequest({ scope: 'gw', resource: { 'service.name': 'gw' }, started: STARTED, now: NOW, metrics });

/** The enumerations of the SDK, which are no dependency of the tests. */
const [CUMULATIVE, HISTOGRAM, GAUGE, SUM, DOUBLE] = [1, 0, 2, 3, 1];

/** The JSON of OpenTelemetry's serializer for the same metrics. */
function official(): unknown {
  const labels = { deployment: 'ü"1' };
  const times = { startTime: hrTime(STARTED), endTime: hrTime(NOW) };
  const described = (name: string) => ({
    descriptor: { name, description: `The ${name}`, unit: '', valueType: DOUBLE },
    aggregationTemporality: CUMULATIVE,
  });
  const histogram = { buckets: { boundaries: [0.5, 2], counts: [2, 0, 1] }, count: 3, sum: 9.25 };
  const metrics = {
    resource: { attributes: { 'service.name': 'gw' } },
    scopeMetrics: [
      {
        scope: { name: 'gw' },
        metrics: [
          {
            ...described('counter_total'),
            dataPointType: SUM,
            isMonotonic: true,
            dataPoints: [{ ...times, attributes: labels, value: 7 }],
          },
          {
            ...described('gauge'),
            dataPointType: GAUGE,
            dataPoints: [{ ...times, attributes: {}, value: -0.5 }],
          },
          {
            ...described('seconds'),
            dataPointType: HISTOGRAM,
            dataPoints: [{ ...times, attributes: labels, value: histogram }],
          },
        ],
      },
    ],
  };
  return JSON.parse(
    new TextDecoder().decode(JsonMetricsSerializer.serializeRequest(metrics as unknown as ResourceMetrics)),
  );
}

/** Without what may be left out, and with 64-bit numbers as text, which may stand as numbers, too. */
function normalised(request: unknown): unknown {
  const omitted = ['droppedAttributesCount', 'unit', 'schemaUrl', 'exemplars'];
  return JSON.parse(JSON.stringify(request), (key, value) => {
    if (omitted.includes(key)) return undefined;
    if (key === 'count') return String(value);
    if (key === 'bucketCounts') return value.map(String);
    // A gauge needs no start.
    if (key === 'gauge') {
      return {
        dataPoints: value.dataPoints.map(
          ({ startTimeUnixNano: _, ...point }: Record<string, unknown>) => point,
        ),
      };
    }
    return value;
  });
}

test('an export is the same as what the serializer of OpenTelemetry makes of these metrics', () => {
  const sharedLabels = { deployment: 'ü"1' };
  const sample = (suffix: string, value: number, labels = {}) => ({
    metricName: `seconds_${suffix}`,
    labels,
    sharedLabels,
    value,
  });
  const metrics: RegistrySnapshot = [
    {
      name: 'counter_total',
      help: 'The counter_total',
      type: 'counter',
      aggregator: 'sum',
      values: [{ labels: sharedLabels, value: 7 }],
    },
    {
      name: 'gauge',
      help: 'The gauge',
      type: 'gauge',
      aggregator: 'max',
      values: [{ labels: {}, value: -0.5 }],
    },
    {
      name: 'seconds',
      help: 'The seconds',
      type: 'histogram',
      aggregator: 'sum',
      values: [
        sample('bucket', 2, { le: 0.5 }),
        sample('bucket', 2, { le: 2 }),
        sample('bucket', 3, { le: '+Inf' }),
        sample('sum', 9.25),
        sample('count', 3),
      ],
    },
  ];
  expect(normalised(requestOf(metrics))).toEqual(normalised(official()));
});

test('the metrics of several processes have the values that /metrics has', async () => {
  const [own, other] = [1, 2].map(() => new Metrics({ version: 'test', node: 'v0' })) as [Metrics, Metrics];
  const merged = new MergedMetrics(own.registry);
  own.deployment('a').operation('x').requests('c', 200, '').inc(3);
  other.deployment('a').operation('x').requests('c', 200, '').inc(4);
  other.deployment('b').operation('').requests('c', 502, 'upstream-tls').inc();
  own.deployment('a').operation('x').duration.observe(0.3);
  other.deployment('a').operation('x').duration.observe(61);
  other.deployment('b').upstreamDuration.observe(0.0001);
  own.circuitState.set({ deployment: 'a', circuit: 'h:1' }, 0.5);
  merged.set(1, await new MergedMetrics(other.registry).snapshot());
  const exported = seriesOfExport(requestOf(await merged.snapshot()));
  const { text } = await merged.text('prometheus');
  expect(exported).toEqual(seriesOfText(text));
  expect(exported['digest_gateway_requests_total client=c code= deployment=a operation=x status=200']).toBe(
    7,
  );
  expect(exported['digest_gateway_request_duration_seconds_bucket deployment=a le=0.5 operation=x']).toBe(1);
  expect(exported['digest_gateway_request_duration_seconds_count deployment=a operation=x']).toBe(2);
});

test('counters and histograms are cumulative since the start; a gauge has its time only', async () => {
  const metrics = new Metrics({ version: 'test', node: 'v0' });
  metrics.deployment('a').upstreamDuration.observe(1);
  const all = metricsOf(requestOf(await new MergedMetrics(metrics.registry).snapshot()));
  const start = { startTimeUnixNano: `${STARTED}000000` };
  const times = { ...start, timeUnixNano: `${NOW}000000` };
  const named = (name: string) => all.find((metric) => metric.name === `digest_gateway_${name}`);
  expect(named('config_reloads_total')).toMatchObject({
    sum: { aggregationTemporality: 2, isMonotonic: true, dataPoints: [times, times] },
  });
  expect(named('upstream_duration_seconds')).toMatchObject({
    histogram: { aggregationTemporality: 2, dataPoints: [times] },
  });
  expect(named('build_info')).toMatchObject({ gauge: { dataPoints: [{ timeUnixNano: `${NOW}000000` }] } });
  expect(named('build_info')).not.toMatchObject({ gauge: { dataPoints: [start] } });
});

test('an exemplar has its trace, and the request as an attribute; a value that JSON cannot have is text', async () => {
  const metrics = new Metrics({ version: 'test', node: 'v0' });
  metrics.deployment('a').operation('').duration.observe(0.2, TRACE, 'q1');
  metrics.upstreamCertificateExpiry.set({ deployment: 'a' }, Number.POSITIVE_INFINITY);
  const text = JSON.stringify(requestOf(await new MergedMetrics(metrics.registry).snapshot()));
  const value = { stringValue: 'q1' };
  const exemplar = { filteredAttributes: [{ key: 'request_id', value }], asDouble: 0.2, traceId: TRACE };
  const found = metricsOf(JSON.parse(text)).flatMap((metric) =>
    'histogram' in metric ? metric.histogram.dataPoints.flatMap(({ exemplars }) => exemplars) : [],
  );
  expect(found).toEqual([{ ...exemplar, timeUnixNano: expect.stringMatching(/^\d{19}$/) }]);
  expect(text).toContain('"asDouble":"Infinity"');
});
