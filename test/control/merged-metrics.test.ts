import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { Registry } from 'prom-client';
import {
  MergedMetrics,
  type MetricsFormat,
  piecesOf,
  type RegistrySnapshot,
  takeSnapshot,
} from '../../src/control/merged-metrics.ts';
import { readTotals } from '../../src/control/totals.ts';
import { Metrics } from '../../src/metrics/metrics.ts';

const BUILD = { version: 'test', node: 'v0' };
const newMetrics = () => new Metrics(BUILD);
/** A snapshot as another process receives it, over a channel of JSON too. */
const sent = async ({ registry }: Metrics): Promise<RegistrySnapshot> => {
  const snapshot = await takeSnapshot(registry);
  expect(JSON.parse(JSON.stringify(snapshot))).toStrictEqual(structuredClone(snapshot));
  return structuredClone(snapshot);
};

/** The lines of the gateway's own metrics. */
function ownLines(text: string): string[] {
  return text.split('\n').filter((line) => /^(# \w+ )?digest_gateway_/.test(line));
}

async function textOf(merged: MergedMetrics, format: MetricsFormat): Promise<string> {
  let text = '';
  for await (const piece of merged.text(format).pieces) text += piece;
  return text;
}

/** The merged values of a metric by its labels, joined with commas. */
async function valuesOf(merged: MergedMetrics, name: string): Promise<Record<string, number>> {
  const full = `digest_gateway_${name}`;
  const metric = (await merged.values([full])).get(full);
  const values = metric === undefined ? [] : [...piecesOf(metric)].flat();
  const parts = values.map(({ labels, sharedLabels, value }) => ({
    parts: { ...labels, ...sharedLabels },
    value,
  }));
  return Object.fromEntries(parts.map(({ parts, value }) => [Object.values(parts).join(','), value]));
}

test('each gauge has a rule for the values of several processes', async () => {
  const metrics = newMetrics();
  const gauges = (await takeSnapshot(metrics.registry)).filter(({ type }) => type === 'gauge');
  expect(Object.fromEntries(gauges.map(({ name, aggregator }) => [name, aggregator]))).toEqual({
    digest_gateway_audit_sink_lag_records: 'sum',
    digest_gateway_audit_sink_lag_seconds: 'max',
    digest_gateway_audit_failing: 'max',
    digest_gateway_audit_unsigned_seconds: 'max',
    digest_gateway_audit_witness_conflict: 'max',
    digest_gateway_build_info: 'first',
    digest_gateway_circuit_state: 'max',
    digest_gateway_client_key_expiry_timestamp_seconds: 'min',
    digest_gateway_client_last_seen_timestamp_seconds: 'max',
    digest_gateway_client_rule_end_timestamp_seconds: 'min',
    digest_gateway_config_last_reload_success_timestamp_seconds: 'first',
    digest_gateway_config_last_reload_successful: 'first',
    digest_gateway_credential_state: 'max',
    digest_gateway_egress_address_present: 'min',
    digest_gateway_egress_address_state: 'max',
    digest_gateway_listen_certificate_expiry_timestamp_seconds: 'min',
    digest_gateway_listen_crl_expiry_timestamp_seconds: 'min',
    digest_gateway_nonce_age_seconds: 'max',
    digest_gateway_nonce_lifetime_seconds: 'min',
    digest_gateway_nonce_policy: 'max',
    digest_gateway_open_files_ratio: 'max',
    digest_gateway_paused: 'max',
    digest_gateway_requests_in_flight: 'sum',
    digest_gateway_sessions: 'first',
    digest_gateway_store_up: 'min',
    digest_gateway_upstream_certificate_expiry_timestamp_seconds: 'min',
    digest_gateway_upstream_connections: 'sum',
    digest_gateway_upstream_health: 'max',
    digest_gateway_workers: 'first',
    nodejs_active_handles: 'sum',
    nodejs_active_requests: 'sum',
    nodejs_active_resources: 'sum',
    nodejs_eventloop_lag_max_seconds: 'max',
    nodejs_eventloop_lag_mean_seconds: 'max',
    nodejs_eventloop_lag_min_seconds: 'min',
    nodejs_eventloop_lag_p50_seconds: 'max',
    nodejs_eventloop_lag_p90_seconds: 'max',
    nodejs_eventloop_lag_p99_seconds: 'max',
    nodejs_eventloop_lag_seconds: 'max',
    nodejs_eventloop_lag_stddev_seconds: 'max',
    nodejs_external_memory_bytes: 'sum',
    nodejs_heap_size_total_bytes: 'sum',
    nodejs_heap_size_used_bytes: 'sum',
    nodejs_heap_space_size_available_bytes: 'sum',
    nodejs_heap_space_size_total_bytes: 'sum',
    nodejs_heap_space_size_used_bytes: 'sum',
    nodejs_version_info: 'first',
    process_heap_bytes: 'sum',
    process_max_fds: 'sum',
    process_open_fds: 'sum',
    process_resident_memory_bytes: 'sum',
    process_start_time_seconds: 'first',
    process_virtual_memory_bytes: 'sum',
  });
});

test('without the event loop of the primary, its delays are those of the workers', async () => {
  const primary = new Metrics(BUILD, { withLoop: false });
  const merged = new MergedMetrics(primary.registry);
  expect(await textOf(merged, 'prometheus')).not.toContain('nodejs_eventloop_lag');
  merged.set(1, await sent(newMetrics()));
  const text = await textOf(merged, 'prometheus');
  for (const name of ['', '_max', '_p99']) expect(text).toMatch(`\nnodejs_eventloop_lag${name}_seconds `);
  expect(text).toContain('\nprocess_start_time_seconds ');
});

describe('without workers', () => {
  test.each(['prometheus', 'openmetrics'] as const)(
    'the text in the format %s is that of the registry',
    async (format) => {
      const metrics = newMetrics();
      const isOpen = format === 'openmetrics';
      if (isOpen) metrics.registry.setContentType(Registry.OPENMETRICS_CONTENT_TYPE);
      const { responseBytes } = metrics.deployment('a');
      const { duration } = metrics.deployment('a').operation('read "all"');
      responseBytes.inc(7);
      duration.observe(0.003, 'trace-1', 'request-1');
      duration.observe(70);
      metrics.storeUp.set(1);
      metrics.nonceLifetime.set({ deployment: 'a' }, Number.POSITIVE_INFINITY);
      const merged = new MergedMetrics(metrics.registry);
      expect(merged.text(format).contentType).toBe(metrics.registry.contentType);
      const text = await textOf(merged, format);
      expect(text.endsWith('# EOF\n')).toBe(isOpen);
      expect(text).toContain('process_start_time_seconds ');
      // Last, because prom-client renames the counters of a registry when it makes OpenMetrics.
      expect(ownLines(text)).toEqual(ownLines(await metrics.registry.metrics()));
      expect(text.includes('# {trace_id="trace-1",request_id="request-1"}')).toBe(isOpen);
    },
  );
});

test('requests are served while the text of thousands of deployments is made', async () => {
  const metrics = newMetrics();
  for (let at = 0; at < 2_000; at += 1) metrics.deployment(`d${at}`).operation('read').duration.observe(at);
  const merged = new MergedMetrics(metrics.registry);
  let turns = 0;
  const timer = setInterval(() => (turns += 1));
  let largest = 0;
  const lines: string[] = [];
  for await (const piece of merged.text('prometheus').pieces) {
    largest = Math.max(largest, piece.length);
    lines.push(...piece.split('\n'));
  }
  clearInterval(timer);
  expect(turns).toBeGreaterThan(3);
  expect(largest).toBeLessThan(200_000);
  expect(lines.filter((line) => line.startsWith('digest_gateway_request_duration_seconds'))).toHaveLength(
    2_000 * 19,
  );
  const names = lines.filter((line) => line.startsWith('# TYPE '));
  expect(new Set(names).size).toBe(names.length);
});

describe('with workers', () => {
  test('requests are served while the values of thousands of deployments become one, and are summed', async () => {
    const metrics = newMetrics();
    for (let at = 0; at < 4_000; at += 1) {
      const operation = metrics.deployment(`d${at}`).operation('read');
      operation.duration.observe(0.2);
      operation.requests('c', 200, '').inc();
    }
    const snapshot = await takeSnapshot(metrics.registry);
    const merged = new MergedMetrics(newMetrics().registry);
    for (let worker = 1; worker <= 8; worker += 1) merged.set(worker, snapshot);
    let turns = 0;
    let next = setImmediate(function turn() {
      turns += 1;
      next = setImmediate(turn);
    });
    const values = await merged.values(['digest_gateway_request_duration_seconds']);
    expect(turns).toBeGreaterThan(0);
    turns = 0;
    const totals = await readTotals((names) => merged.values(names), 0);
    clearImmediate(next);
    expect(turns).toBeGreaterThan(0);
    expect(totals.deployments.get('d7')?.durations.get(0.25)).toBe(8);
    const histogram = values.get('digest_gateway_request_duration_seconds')?.histogram;
    expect(histogram?.series).toHaveLength(4_000);
  });

  test('gauges become one value by their rule', async () => {
    const [primary, a, b] = [newMetrics(), newMetrics(), newMetrics()];
    const merged = new MergedMetrics(primary.registry);
    const address = { deployment: 'd', address: 'u:443' };
    for (const [metrics, value] of [[a, 1] as const, [b, 3] as const]) {
      metrics.deployment('d').requestsInFlight.inc(value);
      metrics.upstreamConnections.set({ deployment: 'd', state: 'free' }, value);
      metrics.nonceAge.set({ deployment: 'd' }, value);
      metrics.nonceLifetime.set({ deployment: 'd' }, value);
      metrics.upstreamCertificateExpiry.set({ deployment: 'd' }, value);
      metrics.listenCertificateExpiry.set(value);
      metrics.configLastReload.set(value);
    }
    a.storeUp.set(1);
    b.storeUp.set(0);
    a.circuitState.set({ deployment: 'd', circuit: 'u:443' }, 0.5);
    b.circuitState.set({ deployment: 'd', circuit: 'u:443' }, 0.5);
    a.upstreamHealth.set({ ...address, state: 'healthy' }, 1);
    a.upstreamHealth.set({ ...address, state: 'failing' }, 0);
    b.upstreamHealth.set({ ...address, state: 'healthy' }, 0);
    b.upstreamHealth.set({ ...address, state: 'failing' }, 1);
    primary.configLastReload.set(7);
    merged.set(1, await sent(a));
    merged.set(2, await sent(b));
    expect(await valuesOf(merged, 'requests_in_flight')).toEqual({ d: 4 });
    expect(await valuesOf(merged, 'upstream_connections')).toEqual({ 'd,free': 4 });
    expect(await valuesOf(merged, 'nonce_age_seconds')).toEqual({ d: 3 });
    expect(await valuesOf(merged, 'nonce_lifetime_seconds')).toEqual({ d: 1 });
    expect(await valuesOf(merged, 'upstream_certificate_expiry_timestamp_seconds')).toEqual({ d: 1 });
    // The primary process sets neither of the two.
    expect(await valuesOf(merged, 'listen_certificate_expiry_timestamp_seconds')).toEqual({ '': 1 });
    expect(await valuesOf(merged, 'store_up')).toEqual({ '': 0 });
    expect(await valuesOf(merged, 'circuit_state')).toEqual({ 'd,u:443': 0.5 });
    expect(await valuesOf(merged, 'upstream_health')).toEqual({ 'd,u:443,healthy': 1, 'd,u:443,failing': 1 });
    expect(await valuesOf(merged, 'config_last_reload_success_timestamp_seconds')).toEqual({ '': 7 });
    expect(await valuesOf(merged, 'build_info')).toEqual({ 'test,v0': 1 });
    expect(await valuesOf(merged, 'nothing')).toEqual({});
  });

  test('the order of labels does not matter', async () => {
    const [primary, worker] = [newMetrics(), newMetrics()];
    primary.challenges.inc({ deployment: 'd', reason: 'cold' });
    worker.challenges.inc({ reason: 'cold', deployment: 'd' });
    const merged = new MergedMetrics(primary.registry);
    merged.set(1, await sent(worker));
    expect(await valuesOf(merged, 'challenges_total')).toEqual({ 'd,cold': 2 });
  });

  test('reloads are those of the primary process, whatever the workers count', async () => {
    const [primary, worker] = [newMetrics(), newMetrics()];
    primary.configReloads.inc({ result: 'success' });
    worker.configReloads.inc({ result: 'success' });
    const merged = new MergedMetrics(primary.registry);
    merged.set(1, await sent(worker));
    expect(await valuesOf(merged, 'config_reloads_total')).toEqual({ success: 1, failure: 0 });
  });

  test('a snapshot of some metrics leaves the others as they were', async () => {
    const worker = newMetrics();
    const merged = new MergedMetrics(newMetrics().registry);
    worker.internalErrors.inc(2);
    worker.challenges.inc({ deployment: 'd', reason: 'cold' });
    merged.set(1, await sent(worker));
    worker.internalErrors.inc(2);
    worker.challenges.inc({ deployment: 'd', reason: 'cold' });
    const names = ['digest_gateway_challenges_total', 'digest_gateway_of_a_later_version'];
    const some = await takeSnapshot(worker.registry, names);
    expect(some.map(({ name }) => name)).toEqual(['digest_gateway_challenges_total']);
    merged.set(1, some);
    expect(await valuesOf(merged, 'challenges_total')).toEqual({ 'd,cold': 2 });
    expect(await valuesOf(merged, 'internal_errors_total')).toEqual({ '': 2 });
  });

  test('a snapshot does not change with its registry', async () => {
    const worker = newMetrics();
    worker.internalErrors.inc();
    const snapshot = await takeSnapshot(worker.registry);
    const before = structuredClone(snapshot);
    worker.internalErrors.inc();
    expect(snapshot).toStrictEqual(before);
  });

  test('a value that is not a number is left out, and the values of others are told', async () => {
    const [primary, worker] = [newMetrics(), newMetrics()];
    primary.nonceAge.set({ deployment: 'd' }, Number.NaN);
    worker.nonceAge.set({ deployment: 'd' }, 3);
    const merged = new MergedMetrics(primary.registry);
    merged.set(1, await sent(worker));
    expect(await valuesOf(merged, 'nonce_age_seconds')).toEqual({ d: 3 });
  });

  test('a bucket has the latest exemplar of all processes', async () => {
    const [primary, a, b] = [newMetrics(), newMetrics(), newMetrics()];
    const merged = new MergedMetrics(primary.registry);
    const observe = async (metrics: Metrics, worker: number, trace: string): Promise<void> => {
      const before = Date.now();
      while (Date.now() === before) await Promise.resolve();
      metrics.deployment('d').operation('read').duration.observe(0.003, trace);
      merged.set(worker, await sent(metrics));
    };
    await observe(b, 2, 'older');
    await observe(a, 1, 'newer');
    b.deployment('d').operation('read').duration.observe(70);
    merged.set(2, await sent(b));
    const lines = ownLines(await textOf(merged, 'openmetrics')).filter((line) => line.includes('_bucket'));
    expect(lines.filter((line) => line.includes('trace_id'))).toEqual([
      expect.stringMatching(
        /le="0.005",deployment="d",operation="read"} 2 # {trace_id="newer"} 0.003 [\d.]+$/,
      ),
    ]);
    expect(lines.at(-1)).toMatch(/le="\+Inf",.*} 3$/);
    merged.ended(1);
    expect(await textOf(merged, 'openmetrics')).toContain('# {trace_id="newer"}');
    expect(await textOf(merged, 'openmetrics')).toContain(
      'digest_gateway_config_reloads_total{result="success"} 0',
    );
  });
});

describe('a worker that has ended', () => {
  test('leaves when it saw clients; the latest time counts', async () => {
    const merged = new MergedMetrics(newMetrics().registry);
    const [first, second] = [newMetrics(), newMetrics()];
    first.clientLastSeen.happened('a');
    first.clientLastSeen.happened('b');
    merged.set(1, await sent(first));
    const { a, b } = await valuesOf(merged, 'client_last_seen_timestamp_seconds');
    const begun = Date.now();
    while (Date.now() === begun);
    second.clientLastSeen.happened('b');
    merged.set(2, await sent(second));
    merged.ended(1);
    const after = await valuesOf(merged, 'client_last_seen_timestamp_seconds');
    expect(after).toEqual({ a, b: expect.any(Number) });
    expect(after['b']).toBeGreaterThan(b ?? 0);
    merged.ended(2);
    expect(await valuesOf(merged, 'client_last_seen_timestamp_seconds')).toEqual(after);
  });

  test('leaves its counts and takes its gauges with it; another one has its number', async () => {
    const merged = new MergedMetrics(newMetrics().registry);
    const first = newMetrics();
    first.deployment('d').requestBytes.inc(5);
    first.deployment('d').operation('read').duration.observe(0.2);
    first.deployment('d').requestsInFlight.inc(4);
    merged.set(1, await sent(first));
    const durations = () => valuesOf(merged, 'request_duration_seconds');
    const counted = await durations();
    expect(counted).toMatchObject({ 'd,read': 1, '+Inf,d,read': 1 });
    merged.ended(1);
    expect(await valuesOf(merged, 'request_bytes_total')).toEqual({ d: 5 });
    expect(await durations()).toEqual(counted);
    expect(await valuesOf(merged, 'requests_in_flight')).toEqual({});
    const second = newMetrics();
    second.deployment('d').requestBytes.inc(2);
    merged.set(1, await sent(second));
    expect(await valuesOf(merged, 'request_bytes_total')).toEqual({ d: 7 });
    // The number of no worker.
    merged.ended(3);
    merged.ended(1);
    merged.ended(1);
    expect(await valuesOf(merged, 'request_bytes_total')).toEqual({ d: 7 });
  });
});

type Step =
  | {
      readonly kind: 'count' | 'observe';
      readonly process: number;
      readonly by: number;
      readonly deployment: string;
    }
  | { readonly kind: 'send' | 'end'; readonly process: number };

const process = fc.nat({ max: 3 });
const steps: fc.Arbitrary<Step[]> = fc.array(
  fc.oneof(
    fc.record({
      kind: fc.constantFrom('count' as const, 'observe' as const),
      process,
      by: fc.nat({ max: 100 }),
      deployment: fc.constantFrom('a', 'b', 'c "quoted\\'),
    }),
    fc.record({ kind: fc.constantFrom('send' as const, 'end' as const), process }),
  ),
  { maxLength: 60 },
);

/** Names of metrics that the steps change. */
const CHANGED = [
  'digest_gateway_requests_total',
  'digest_gateway_request_bytes_total',
  'digest_gateway_request_duration_seconds',
  'digest_gateway_challenges_total',
];

/** Processes that count on their own, and one that counts what all of them do; number 0 is the primary process. */
class Processes {
  readonly #all = newMetrics();
  readonly #primary = newMetrics();
  readonly #running = new Map([[0, this.#primary]]);
  readonly #merged = new MergedMetrics(this.#primary.registry);

  async take(step: Step): Promise<void> {
    const { kind, process } = step;
    const metrics = this.#running.get(process) ?? newMetrics();
    this.#running.set(process, metrics);
    if (kind === 'count' || kind === 'observe') {
      for (const each of [this.#all, metrics]) apply(each, step);
      return;
    }
    await this.#send(process, metrics);
    if (kind !== 'end' || process === 0) return;
    this.#merged.ended(process);
    this.#running.delete(process);
  }

  async sendAll(): Promise<void> {
    for (const [process, metrics] of this.#running) await this.#send(process, metrics);
  }

  /** The counts by series. */
  merged(): Promise<Map<string, number>> {
    return countsOf(this.#merged);
  }

  expected(): Promise<Map<string, number>> {
    return countsOf(new MergedMetrics(this.#all.registry));
  }

  async #send(process: number, { registry }: Metrics): Promise<void> {
    if (process === 0) return;
    this.#merged.set(process, structuredClone(await takeSnapshot(registry, CHANGED)));
  }
}

async function countsOf(merged: MergedMetrics): Promise<Map<string, number>> {
  const metrics = await merged.values(CHANGED);
  const samples = [...metrics].flatMap(([name, metric]) =>
    [...piecesOf(metric)].flat().map((sample) => ({ name, ...sample })),
  );
  return new Map(samples.map(({ value, exemplar: _, ...series }) => [JSON.stringify(series), value]));
}

test('counters and histograms are those of one process that did everything, and never fall', async () => {
  await fc.assert(
    fc.asyncProperty(steps, async (taken) => {
      const processes = new Processes();
      let before = new Map<string, number>();
      for (const step of taken) {
        await processes.take(step);
        const after = await processes.merged();
        expect([...before].filter(([series, value]) => !((after.get(series) ?? -1) >= value))).toEqual([]);
        before = after;
      }
      await processes.sendAll();
      expect(await processes.merged()).toEqual(await processes.expected());
    }),
    { numRuns: 50 },
  );
});

function apply(metrics: Metrics, { kind, deployment, by }: Extract<Step, { deployment: string }>): void {
  if (kind === 'count') {
    metrics.deployment(deployment).requestBytes.inc(by);
    metrics.deployment(deployment).operation('read').requests('reporting', 200, '').inc(by);
    metrics.challenges.inc({ deployment, reason: 'cold' }, by);
  } else {
    // Sums of such values have no rounding error.
    metrics
      .deployment(deployment)
      .operation('read')
      .duration.observe(by / 16);
  }
}
