import { describe, expect, test } from '@jest/globals';
import { Histogram, Registry, type RegistryContentType } from 'prom-client';
import { Metrics } from '../../src/metrics/metrics.ts';
import { SeriesHistogram } from '../../src/metrics/series.ts';

const newMetrics = () => new Metrics({ version: 'test', node: 'v0' });

/** The lines of one metric in the text for Prometheus. */
async function linesOf(metrics: Metrics, name: string): Promise<string[]> {
  const text = await metrics.registry.metrics();
  return text.split('\n').filter((line) => line.startsWith(`digest_gateway_${name}`));
}

describe('a series', () => {
  test('appears with its first change, also by zero', async () => {
    const metrics = newMetrics();
    const { responseBytes, requestsInFlight } = metrics.deployment('a');
    metrics.deployment('b');
    expect(await linesOf(metrics, 'response_bytes_total')).toEqual([]);
    responseBytes.inc(0);
    requestsInFlight.inc();
    requestsInFlight.inc(-1);
    expect(await linesOf(metrics, 'response_bytes_total')).toEqual([
      'digest_gateway_response_bytes_total{deployment="a"} 0',
    ]);
    expect(await linesOf(metrics, 'requests_in_flight')).toEqual([
      'digest_gateway_requests_in_flight{deployment="a"} 0',
    ]);
    expect(await linesOf(metrics, 'request_duration_seconds')).toEqual([]);
  });

  test('is the same one for the same labels', async () => {
    const metrics = newMetrics();
    for (const code of ['', 'rate-limited', '']) {
      metrics.deployment('a').operation('read').requests('reporting', 429, code).inc();
    }
    metrics.deployment('a').operation('').requests('reporting', 429, '').inc();
    const labels = (operation: string, code: string) =>
      `{deployment="a",operation="${operation}",client="reporting",status="429",code="${code}"}`;
    expect(await linesOf(metrics, 'requests_total')).toEqual([
      `digest_gateway_requests_total${labels('read', '')} 2`,
      `digest_gateway_requests_total${labels('read', 'rate-limited')} 1`,
      `digest_gateway_requests_total${labels('', '')} 1`,
    ]);
  });

  test('loses and repeats nothing when it is read between changes, by several readers at once', async () => {
    const metrics = newMetrics();
    const { upstreamAttempts } = metrics.deployment('a');
    const read = metrics.deployment('a').operation('read');
    const readings: Promise<string>[] = [];
    for (let count = 1; count <= 300; count += 1) {
      upstreamAttempts.ok.inc();
      read.requests('reporting', 200, '').inc();
      read.duration.observe(0.002);
      if (count % 3 === 0) readings.push(metrics.registry.metrics());
      if (count % 10 === 0) await readings.at(-1);
    }
    readings.push(metrics.registry.metrics());
    const texts = await Promise.all(readings);
    for (const name of ['upstream_attempts_total', 'requests_total', 'request_duration_seconds_count']) {
      const values = texts.map((text) =>
        Number(new RegExp(`^digest_gateway_${name}{.*} (\\d+)$`, 'm').exec(text)?.[1]),
      );
      // A reader sees at least what was counted when it began, and nothing twice.
      for (const [index, value] of values.slice(0, -1).entries()) {
        expect(value).toBeGreaterThanOrEqual((index + 1) * 3);
      }
      expect(values).toEqual(values.toSorted((a, b) => a - b));
      expect(values.at(-1)).toBe(300);
    }
  });
});

describe('a histogram', () => {
  const buckets = [0.1, 1, 2.5];
  const options = {
    name: 'seconds',
    help: 'Seconds',
    labelNames: ['deployment', 'operation'] as const,
    buckets,
  };
  const labels = { deployment: 'a', operation: 'read "all"' };
  const values = [0, 0.05, 0.1, 0.100001, 1, 2.5, 2.500001, 70, 0.3, 0.1];

  test('has the text and the values of one of prom-client', async () => {
    const [ours, theirs] = [new Registry(), new Registry()];
    const series = new SeriesHistogram({ ...options, registers: [ours] }).series(labels);
    const histogram = new Histogram({ ...options, registers: [theirs] });
    expect(await ours.metrics()).toBe(await theirs.metrics());
    for (const value of values) {
      series.observe(value);
      histogram.observe(labels, value);
      expect(await ours.metrics()).toBe(await theirs.metrics());
    }
    const [own] = await ours.getMetricsAsJSON();
    const [other] = await theirs.getMetricsAsJSON();
    expect(JSON.parse(JSON.stringify(own?.values))).toEqual(
      JSON.parse(JSON.stringify(other?.values, (_key, value) => value ?? undefined)),
    );
  });

  test('has the exemplars of one of prom-client', async () => {
    const newRegistry = () => {
      const registry = new Registry<RegistryContentType>();
      registry.setContentType(Registry.OPENMETRICS_CONTENT_TYPE);
      return registry;
    };
    const [ours, theirs] = [newRegistry(), newRegistry()];
    const series = new SeriesHistogram({ ...options, registers: [ours] }).series(labels);
    const histogram = new Histogram({ ...options, registers: [theirs], enableExemplars: true });
    for (const [index, value] of values.entries()) {
      const trace_id = String(index);
      const traced = index % 3 !== 0;
      series.observe(value, traced ? trace_id : undefined);
      // biome-ignore lint/suspicious/noExplicitAny: the types of prom-client demand all labels of the metric.
      const exemplarLabels = (traced ? { trace_id } : {}) as any;
      histogram.observe({ labels, value, exemplarLabels });
    }
    const withoutTimes = async (registry: Registry<RegistryContentType>) =>
      (await registry.metrics()).replace(/ [\d.]+$/gm, (end) => (Number(end) > 1e9 ? ' TIME' : end));
    expect(await withoutTimes(ours)).toBe(await withoutTimes(theirs));
    expect(await withoutTimes(ours)).toContain('# {trace_id="7"} 70 TIME');
  });

  test('leaves out a request id with which an exemplar would be too long', () => {
    const series = new SeriesHistogram(options).series(labels);
    const exemplars = [78, 79].map((length) => {
      series.observe(0.1, 't'.repeat(32), 'r'.repeat(length));
      const found = series.values(labels)?.exemplars?.find((exemplar) => exemplar !== null);
      return Object.entries(found?.labelSet ?? {})
        .flat()
        .join('').length;
    });
    expect(exemplars).toEqual([128, 40]);
  });
});

test('the share of open files is that of this process', async () => {
  const text = await newMetrics().registry.metrics();
  const valueIn = (name: string) => Number(new RegExp(`^${name} (\\S+)$`, 'm').exec(text)?.[1]);
  const [open, max] = [valueIn('process_open_fds'), valueIn('process_max_fds')];
  expect(open).toBeGreaterThan(0);
  expect(valueIn('digest_gateway_open_files_ratio')).toBe(open / max);
});
