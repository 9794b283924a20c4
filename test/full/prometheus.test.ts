import { createHash } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { parse, stringify } from 'yaml';
import { Tracing } from '../../src/tracing/tracing.ts';
import { runCommand } from '../support/program.ts';
import { recordTraces } from '../support/recorded-traces.ts';
import { repository } from '../support/repository.ts';
import { authors, openScene, type RunningScene } from '../support/scene.ts';
import { startServer } from '../support/server-process.ts';
import { until } from '../support/until.ts';

const DEPLOYED = join(repository, 'deploy/prometheus');

/** One series of an answer, and its value now. */
interface Sample {
  readonly metric: Readonly<Record<string, string>>;
  readonly value: number;
}

/** A Prometheus of the system's packages. */
interface Prometheus {
  /** @throws Error with what Prometheus says of a query that it cannot run */
  query(expression: string): Promise<Sample[]>;
  /** Resolves with the samples once there are some and they pass. */
  sees(expression: string, passes?: (samples: readonly Sample[]) => boolean): Promise<Sample[]>;
  /** The exemplars of a series, once there are some. */
  exemplars(expression: string): Promise<Readonly<Record<string, string>>[]>;
  /** The rules that are loaded, once each has been evaluated: `ok`, or what was wrong. */
  rules(): Promise<{ name: string; health: string }[]>;
  close(): Promise<void>;
}

/** Runs Prometheus with the configuration and the rules of deploy/, in front of one gateway and more often. */
async function startPrometheus(control: string, token: string): Promise<Prometheus> {
  const server = await startServer({
    async prepare({ folder, port }) {
      const config = parse(await readFile(join(DEPLOYED, 'prometheus.yml'), 'utf8'));
      config.global = { scrape_interval: '200ms', evaluation_interval: '200ms' };
      config.rule_files = config.rule_files.map((name: string) => join(DEPLOYED, name));
      config.scrape_configs[0].static_configs = [{ targets: [new URL(control).host] }];
      await writeFile(join(folder, config.scrape_configs[0].authorization.credentials_file), token);
      await writeFile(join(folder, 'prometheus.yml'), stringify(config));
      return [
        'prometheus',
        `--config.file=${folder}/prometheus.yml`,
        `--storage.tsdb.path=${folder}/data`,
        `--web.listen-address=127.0.0.1:${port}`,
        '--enable-feature=exemplar-storage',
        '--log.level=error',
      ];
    },
    async answers({ port }) {
      const ready = await fetch(`http://127.0.0.1:${port}/-/ready`).catch(() => undefined);
      await ready?.body?.cancel();
      return ready?.ok === true;
    },
  });
  const api = `http://127.0.0.1:${server.place.port}/api/v1`;
  const query = async (expression: string): Promise<Sample[]> => {
    const body = new URLSearchParams({ query: expression });
    const answer = (await (await fetch(`${api}/query`, { method: 'POST', body })).json()) as Answer;
    if (answer.status !== 'success') throw new Error(`${answer.error}: ${expression}`);
    return answer.data.result.map(({ metric, value: [, value] }) => ({ metric, value: Number(value) }));
  };
  return {
    query,
    async sees(expression, passes = () => true) {
      let samples: Sample[] = [];
      await until(async () => {
        samples = await query(expression);
        return samples.length > 0 && passes(samples);
      });
      return samples;
    },
    async exemplars(expression) {
      let labels: Readonly<Record<string, string>>[] = [];
      const times = `start=${Date.now() / 1000 - 3600}&end=${Date.now() / 1000 + 3600}`;
      await until(async () => {
        const url = `${api}/query_exemplars?query=${encodeURIComponent(expression)}&${times}`;
        const { data } = (await (await fetch(url)).json()) as ExemplarsAnswer;
        labels = data.flatMap(({ exemplars }) => exemplars.map((exemplar) => exemplar.labels));
        return labels.length > 0;
      });
      return labels;
    },
    async rules() {
      let rules: { name: string; health: string }[] = [];
      await until(async () => {
        const { data } = (await (await fetch(`${api}/rules`)).json()) as RulesAnswer;
        rules = data.groups.flatMap((group) => group.rules);
        return rules.every(({ health }) => health !== 'unknown');
      });
      return rules;
    },
    close: () => server.close(),
  };
}

interface ExemplarsAnswer {
  readonly data: { readonly exemplars: { readonly labels: Readonly<Record<string, string>> }[] }[];
}

interface RulesAnswer {
  readonly data: { readonly groups: { readonly rules: { name: string; health: string }[] }[] };
}

type Answer =
  | { status: 'error'; error: string }
  | { status: 'success'; data: { result: { metric: Record<string, string>; value: [number, string] }[] } };

const TOKEN = 'a-token-of-the-tests';
const { tracer, spans } = recordTraces();

let pair: RunningScene;
let prometheus: Prometheus;

beforeAll(async () => {
  const tokenSha256 = createHash('sha256').update(TOKEN).digest('hex');
  pair = await openScene({ top: { control: { port: 0, tokenSha256 } }, tracing: new Tracing(tracer) });
  for (let request = 0; request < 5; request += 1) {
    await (await pair.get(authors, { headers: { 'x-request-id': `request-${request}` } })).arrayBuffer();
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
  // A scrape that takes longer than the interval fails, and Prometheus then has no values.
  const [count] = await prometheus.sees('sum(digest_gateway_request_duration_seconds_count)');
  expect(count?.value).toBe(6);
  const challenges = await prometheus.sees('digest_gateway_challenges_total');
  expect(challenges.map(({ value }) => value)).toEqual([1]);
});

test('Prometheus keeps exemplars with the trace and the request of a duration', async () => {
  const exemplars = await prometheus.exemplars('digest_gateway_request_duration_seconds_bucket');
  const requests = new Map(
    spans
      .filter(({ name }) => name === 'request')
      .map(({ attributes, traceId }) => [attributes['digest_gateway.request_id'], traceId]),
  );
  expect(exemplars.filter(({ request_id = '' }) => request_id.startsWith('request-'))).not.toEqual([]);
  for (const { request_id, trace_id } of exemplars) expect(requests.get(request_id)).toBe(trace_id);
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
  // One of a scrape that was late on a busy machine goes with the next.
  await until(async () => (await prometheus.query('ALERTS')).length === 0);
});
