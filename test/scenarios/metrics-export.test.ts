import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from '@jest/globals';
import { useFolders } from '../support/audit-log.ts';
import { closing } from '../support/closing.ts';
import { createTestAuthority } from '../support/issued-certificates.ts';
import {
  type MetricsRequest,
  metricsOf,
  type OtlpServer,
  type SeriesValues,
  seriesOfExport,
  seriesOfText,
  startOtlpMetrics,
} from '../support/otlp-receiver.ts';
import { authors, startScene } from '../support/scene.ts';
import { freePort } from '../support/server-process.ts';
import { until } from '../support/until.ts';

const folder = useFolders();

/** Longer than a test: exports at the start and at the end only. */
const NEVER = '1h';
/** Metrics that change with the time alone. */
const TIMED = /^digest_gateway_(nonce_age|nonce_lifetime)_seconds/;

async function receiver(options: Parameters<typeof startOtlpMetrics>[0] = {}) {
  const server = await startOtlpMetrics(options);
  closing.push(() => server.close());
  return server;
}

const exporting = ({ endpoint }: Pick<OtlpServer<MetricsRequest>, 'endpoint'>, change: object = {}) => ({
  metrics: { otlp: { endpoint, interval: NEVER, instance: 'gw-1', ...change } },
});

function lastOf({ requests }: OtlpServer<MetricsRequest>): MetricsRequest {
  const last = requests.at(-1);
  if (last === undefined) throw new Error('nothing was exported');
  return last.request;
}

async function scraped(control: string): Promise<SeriesValues> {
  return seriesOfText(await (await fetch(`${control}/metrics`)).text());
}

function without(values: SeriesValues, omitted: RegExp): SeriesValues {
  return Object.fromEntries(Object.entries(values).filter(([key]) => !omitted.test(key)));
}

function matching(values: SeriesValues, wanted: RegExp): SeriesValues {
  return Object.fromEntries(Object.entries(values).filter(([key]) => wanted.test(key)));
}

function sumOf(values: SeriesValues, name: string): number {
  return Object.entries(matching(values, new RegExp(`^digest_gateway_${name}(?: |$)`))).reduce(
    (sum, [, value]) => sum + value,
    0,
  );
}

test('a receiver gets the values of /metrics at every interval, since the start of the process', async () => {
  const server = await receiver();
  const { gateway, get } = await startScene({ top: exporting(server, { interval: '50ms' }) });
  for (let count = 0; count < 3; count += 1) await (await get(authors)).text();
  // Requests are counted when their responses have left.
  await until(async () => (await gateway.metric('digest_gateway_requests_total')) === 3);
  const scrape = await scraped(gateway.control);
  const before = server.requests.length;
  // The first of these may have been read before the scrape.
  await until(() => server.requests.length >= before + 2);
  const request = lastOf(server);
  expect(without(seriesOfExport(request), TIMED)).toEqual(without(scrape, TIMED));
  expect(sumOf(scrape, 'requests_total')).toBe(3);
  expect(sumOf(scrape, 'request_duration_seconds_count')).toBe(3);

  const [{ resource }] = request.resourceMetrics as [MetricsRequest['resourceMetrics'][number]];
  expect(resource.attributes).toEqual([
    { key: 'service.name', value: { stringValue: 'digest-gateway' } },
    { key: 'service.version', value: { stringValue: 'test' } },
    { key: 'service.instance.id', value: { stringValue: 'gw-1' } },
  ]);
  const starts = server.requests.flatMap(({ request: each }) =>
    metricsOf(each).flatMap((metric) =>
      'sum' in metric ? metric.sum.dataPoints.map((point) => point.startTimeUnixNano) : [],
    ),
  );
  expect(new Set(starts)).toEqual(new Set([`${Math.trunc(performance.timeOrigin)}000000`]));
});

test('two workers are one sum: the last export, at the end of the drain, has every request', async () => {
  const server = await receiver();
  const fleet = await startScene({ workers: 2, top: exporting(server) });
  const { gateway } = fleet;
  const statuses = await Promise.all(
    Array.from({ length: 40 }, async () => {
      const response = await fetch(`${gateway.origin}${authors}`, { headers: { connection: 'close' } });
      await response.text();
      return response.status;
    }),
  );
  expect(statuses).toEqual(Array.from({ length: 40 }, () => 200));
  await until(async () => (await gateway.metric('digest_gateway_requests_total')) === 40);
  const scrape = await scraped(gateway.control);
  // The first export is made at the start; the next one is that of the drain.
  await until(() => server.requests.length === 1);
  expect(sumOf(seriesOfExport(lastOf(server)), 'workers')).toBe(2);
  await gateway.drain();
  expect(await gateway.ended).toBe(0);
  expect(server.requests).toHaveLength(2);
  const counts =
    /^digest_gateway_(requests_total|re\w+_bytes_total|\w+_seconds_(bucket|sum|count)|upstream_attempts_total) /;
  const last = seriesOfExport(lastOf(server));
  expect(matching(last, counts)).toEqual(matching(scrape, counts));
  expect(sumOf(last, 'requests_total')).toBe(40);
  expect(sumOf(last, 'request_duration_seconds_count')).toBe(40);
  const started = metricsOf(lastOf(server)).find(({ name }) => name === 'process_start_time_seconds');
  const total = metricsOf(lastOf(server)).find(({ name }) => name === 'digest_gateway_requests_total');
  if (started === undefined || !('gauge' in started)) throw new Error('no start time');
  if (total === undefined || !('sum' in total)) throw new Error('no requests');
  const seconds = Number(total.sum.dataPoints[0]?.startTimeUnixNano) / 1e9;
  // Within the second to which /proc is exact.
  expect(Math.abs(seconds - Number(started.gauge.dataPoints[0]?.asDouble))).toBeLessThan(2);
});

test('an outage is logged once and counted, and costs no counter', async () => {
  const port = await freePort();
  const endpoint = `http://127.0.0.1:${port}/v1/metrics`;
  const { gateway, get } = await startScene({ top: exporting({ endpoint }, { interval: '20ms' }) });
  const failures = (): Promise<number> => gateway.metric('digest_gateway_metrics_export_failures_total');
  await until(async () => (await failures()) >= 3);
  await (await get(authors)).text();
  const server = await receiver({ port });
  await until(() =>
    server.requests.some(({ request }) => sumOf(seriesOfExport(request), 'requests_total') === 1),
  );
  await until(() => gateway.logged.length === 2);
  expect(gateway.logged).toMatchObject([
    {
      level: 'warn',
      reason: `127.0.0.1:${port}: ECONNREFUSED`,
      msg: 'metrics could not be sent; trying again at each interval',
    },
    { level: 'info', msg: 'metrics are sent again' },
  ]);
  expect(sumOf(seriesOfExport(lastOf(server)), 'metrics_export_failures_total')).toBeGreaterThanOrEqual(3);
});

test('header fields come from secrets, over verified TLS, and are never logged', async () => {
  const [own, other] = [await createTestAuthority(), await createTestAuthority()];
  const files = await folder();
  const trust = async ({ ca }: { ca: string }, name: string): Promise<{ caFile: string }> => {
    const caFile = join(files, name);
    await writeFile(caFile, ca);
    return { caFile };
  };
  await writeFile(join(files, 'token'), 'Bearer marked-secret\n', { mode: 0o600 });
  const server = await receiver({ pair: await own.server() });
  const headers = { authorization: { file: join(files, 'token') } };
  const good = await startScene({ top: exporting(server, { headers, tls: await trust(own, 'own.pem') }) });
  await until(() => server.requests.length === 1);
  expect(server.requests[0]?.headers).toMatchObject({
    authorization: 'Bearer marked-secret',
    'content-type': 'application/json',
  });
  await good.close();
  expect(good.gateway.logged).toEqual([]);

  const before = server.requests.length;
  const bad = await startScene({ top: exporting(server, { headers, tls: await trust(other, 'other.pem') }) });
  await until(() => bad.gateway.logged.length === 1);
  expect(bad.gateway.logged).toMatchObject([
    { level: 'warn', reason: expect.stringMatching(/CERT|SIGNATURE/) },
  ]);
  await bad.close();
  expect(server.requests).toHaveLength(before);
  expect(JSON.stringify(bad.gateway.logged)).not.toContain('marked-secret');
});

test('a receiver that hangs holds the end of the process no longer than the timeout', async () => {
  const server = await receiver();
  server.replies.push('hang', 'hang');
  const { gateway, close } = await startScene({ top: exporting(server, { timeout: '300ms' }) });
  await until(() => gateway.logged.length === 1);
  expect(gateway.logged).toMatchObject([{ level: 'warn', reason: 'not confirmed within 300 ms' }]);
  await close();
  expect(server.requests).toHaveLength(2);
  expect(server.replies).toEqual([]);
});

test('data points that the receiver refused are a failure; a wait that it asks for is kept', async () => {
  const server = await receiver();
  server.replies.push(
    { body: '{"partialSuccess":{"rejectedDataPoints":"2","errorMessage":"marked-secret"}}' },
    { status: 429, headers: { 'retry-after': '3600' } },
  );
  const { gateway } = await startScene({ top: exporting(server, { interval: '10ms' }) });
  const failures = (): Promise<number> => gateway.metric('digest_gateway_metrics_export_failures_total');
  await until(async () => (await failures()) === 2);
  expect(gateway.logged).toMatchObject([{ level: 'warn', reason: '2 data points refused' }]);
  expect(JSON.stringify(gateway.logged)).not.toContain('marked-secret');
  // Further exports would come within 10 ms each.
  for (let count = 0; count < 20; count += 1) await gateway.metric('digest_gateway_build_info');
  expect(server.requests).toHaveLength(2);
});
