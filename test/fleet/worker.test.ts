import { describe, expect, test } from '@jest/globals';
import { pino } from 'pino';
import { openParts } from '../../src/app/compose.ts';
import { DataPlane } from '../../src/app/data-plane.ts';
import type { WantedMetrics, WorkerReport } from '../../src/app/worker.ts';
import { BufferGc } from '../../src/base/buffer-gc.ts';
import { monotonicClock } from '../../src/base/clock.ts';
import { CallClient } from '../../src/base/message-calls.ts';
import { sharedSettings } from '../../src/config/listen.ts';
import { callsTo, PROTOCOL } from '../../src/fleet/protocol.ts';
import { unionOfMetrics } from '../../src/fleet/remote-worker.ts';
import { setupOfWorker, WorkerProcess } from '../../src/fleet/worker.ts';
import { CLIENT_LAST_SEEN } from '../../src/metrics/metrics.ts';
import type { AppSetup } from '../../src/setup/setup.ts';
import { toTransfer } from '../../src/setup/transfer.ts';
import { auditOptions, recordsIn, useFolders } from '../support/audit-log.ts';
import { closing } from '../support/closing.ts';
import { setupFor } from '../support/gateway.ts';
import { portPair } from '../support/process-ports.ts';

const folderOf = useFolders();

/** A worker in this process, which is open and does not listen yet. */
async function openWorker(setup: AppSetup) {
  const pair = portPair();
  closing.push(async () => pair.close());
  const [client, server] = pair.ports;
  const worker = new WorkerProcess({
    port: { ...server, flushed: () => Promise.resolve() },
    version: 'test',
    open: async (own) => {
      const log = pino({}, { write: () => {} });
      const build = { version: 'test', node: 'v0' };
      const bufferGc = new BufferGc(() => {});
      const options = { worker: 1, log, build, clock: monotonicClock, tracing: undefined, bufferGc };
      const parts = await openParts(own, options);
      return { plane: new DataPlane(own, parts), audit: parts.audit };
    },
  });
  const calls = callsTo(client);
  const drain = { withDelay: false, auditFrom: undefined, metrics: 'all', withState: true } as const;
  let drained: Promise<WorkerReport> | undefined;
  const end = (): Promise<WorkerReport> => {
    drained ??= calls.drain(drain);
    return drained;
  };
  closing.push(end);
  await calls.open({ protocol: PROTOCOL, number: 1, workers: 1, setup: toTransfer(setup) });
  return { client, worker, calls, end };
}

test('a worker records in its own log that it starts, as the end of what a killed one may still have recorded', async () => {
  const folder = await folderOf();
  const a = { origin: 'https://a.example.org' };
  const setup = await setupFor({ a }, { listen: { port: 0 } });
  const { calls, end } = await openWorker({ ...setup, audit: auditOptions(folder) });
  expect(await calls.listen()).toHaveLength(1);
  await end();
  expect(await recordsIn(folder, 'r1@1')).toMatchObject([
    { event: 'start', replica: 'r1@1', version: 'test' },
    { event: 'stop' },
  ]);
});

test('a report has what was asked for, and nothing that takes longer', async () => {
  const folder = await folderOf();
  const outcomes = [{ name: 'quota', status: 429 }];
  const a = { origin: 'https://a.example.org', settings: { outcomes } };
  const setup = await setupFor({ a }, { listen: { port: 0 } });
  const { client, worker, calls, end } = await openWorker({ ...setup, audit: auditOptions(folder) });
  const ask = async (metrics: WantedMetrics, withState = false) => {
    const report = await calls.report({ auditFrom: undefined, metrics, withState });
    const valuesOf = (name: string) =>
      report.metrics.find((each) => each.name === `digest_gateway_${name}`)?.values;
    return { ...report, valuesOf, types: new Set(report.metrics.map(({ type }) => type)) };
  };

  const any = new CallClient({ port: client, service: 'worker' });
  for (const name of ['constructor', 'hasOwnProperty', 'commits']) {
    await expect(any.call(name, undefined)).rejects.toThrow('unknown function');
  }

  const counts = await ask('counts');
  expect([...counts.types].toSorted()).toEqual(['counter', 'gauge', 'histogram']);
  expect(counts.metrics.flatMap(({ name, type }) => (type === 'gauge' ? [name] : []))).toEqual([
    CLIENT_LAST_SEEN,
  ]);
  expect(counts.valuesOf('audit_records_total')).toMatchObject([{ value: expect.any(Number) }]);
  // Prometheus sees no increase in a counter that first appears with 1.
  expect(counts.valuesOf('outcomes_total')).toMatchObject([{ labels: { outcome: 'quota' }, value: 0 }]);
  expect(counts.state).toBeUndefined();
  // No gauge was read for these.
  expect((await ask(['digest_gateway_circuit_state'])).valuesOf('circuit_state')).toEqual([]);

  const all = await ask('all');
  expect(all.types).toContain('gauge');
  expect(all.valuesOf('circuit_state')).not.toEqual([]);
  expect(all.state).toBeUndefined();

  const state = await ask([], true);
  expect(state.metrics).toEqual([]);
  expect(state.state?.deployments).toMatchObject([{ name: 'a' }]);

  expect((await end()).state?.serves).toBe(false);
  await worker.run();
});

test('two reports in one have the metrics of both', () => {
  expect(unionOfMetrics('counts', 'counts')).toBe('counts');
  expect(unionOfMetrics(['a', 'b'], ['b', 'c'])).toEqual(['a', 'b', 'c']);
  // A name may be that of a gauge.
  expect(unionOfMetrics('counts', ['a'])).toBe('all');
  expect(unionOfMetrics(['a'], 'all')).toBe('all');
});

describe('the setup of a worker', () => {
  test('has its part of connections and memory, at least 1, and an audit folder of its own', async () => {
    const setup = {
      ...(await setupFor(
        {
          a: { origin: 'https://a.example.org', settings: { connections: 2 } },
          b: {
            origin: 'https://b.example.org',
            settings: { connections: 10, match: { pathPrefix: '/b' } },
          },
        },
        { listen: { port: 0, limits: { connections: 100, connectionsPerAddress: 10, bodyMemory: '4MiB' } } },
      )),
      audit: auditOptions('/log'),
    };
    const { config, audit } = setupOfWorker(setup, 3, 4);
    const { connections, connectionsPerAddress, bodyMemory } = sharedSettings(config.listen).limits;
    expect([connections, connectionsPerAddress, bodyMemory]).toEqual([25, 10, 2 ** 20]);
    expect(config.deployments['a']?.connections).toBe(1);
    // 3 each would be 12 at the upstream, where 10 is the most.
    expect(config.deployments['b']?.connections).toBe(2);
    expect(audit?.replica).toBe('r1@3');
    expect(setupOfWorker({ ...setup, audit: undefined }, 1, 1).audit).toBeUndefined();
  });
});
