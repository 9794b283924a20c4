import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { runCommand } from '../support/command.ts';
import { type Prometheus, startPrometheus } from '../support/prometheus.ts';
import { repository } from '../support/repository.ts';
import { authors, openPair, type Pair } from '../support/simulated-pair.ts';

const TOKEN = 'a-token-of-the-tests';

let pair: Pair;
let prometheus: Prometheus;

beforeAll(async () => {
  const tokenSha256 = createHash('sha256').update(TOKEN).digest('hex');
  pair = await openPair({ top: { control: { port: 0, tokenSha256 } } });
  for (let request = 0; request < 5; request += 1) {
    await (await pair.get(authors)).arrayBuffer();
  }
  await (await pair.get('/api/manuscripts/v2/nowhere')).arrayBuffer();
  prometheus = await startPrometheus(pair.gateway.control, TOKEN);
  // Prometheus takes five seconds to its first scrape, whatever the interval.
  await prometheus.sees('up{job="digest-gateway"}', ([up]) => up?.value === 1);
});

afterAll(async () => {
  await prometheus?.close();
  await pair?.close();
});

test('promtool finds nothing to object to in /metrics', async () => {
  const headers = { authorization: `Bearer ${TOKEN}` };
  const metrics = await (await fetch(`${pair.gateway.control}/metrics`, { headers })).text();
  expect(await runCommand('promtool', ['check', 'metrics'], metrics)).toEqual({ status: 0, printed: '' });
});

test('Prometheus scrapes with the token and knows what clients saw', async () => {
  const requests = await prometheus.sees('sum by (status) (digest_gateway_requests_total)');
  expect(Object.fromEntries(requests.map(({ metric, value }) => [metric['status'], value]))).toEqual({
    200: 5,
    404: 1,
  });
  const [count] = await prometheus.query('sum(digest_gateway_request_duration_seconds_count)');
  expect(count?.value).toBe(6);
  const challenges = await prometheus.query('digest_gateway_challenges_total');
  expect(challenges.map(({ value }) => value)).toEqual([1]);
});

test('every query of the dashboard runs, and every alert is loaded and quiet', async () => {
  const dashboard = JSON.parse(
    await readFile(join(repository, 'deploy/grafana/digest-gateway.json'), 'utf8'),
  );
  const queries: string[] = dashboard.panels.flatMap(({ targets = [] }: { targets?: { expr: string }[] }) =>
    targets.map(({ expr }) => expr),
  );
  expect(queries.length).toBeGreaterThan(30);
  for (const query of queries) {
    await prometheus.query(
      query.replaceAll('$__rate_interval', '1m').replaceAll(/"\$(instance|deployment)"/g, '".*"'),
    );
  }
  const rules = await prometheus.rules();
  expect(rules.filter(({ health }) => health !== 'ok')).toEqual([]);
  expect(rules.length).toBeGreaterThan(12);
  expect(await prometheus.query('ALERTS')).toEqual([]);
});
