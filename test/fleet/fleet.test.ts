import cluster, { type Worker as ClusterWorker } from 'node:cluster';
import { EventEmitter } from 'node:events';
import { setTimeout as delay, setImmediate as turn } from 'node:timers/promises';
import { afterEach, expect, jest, test } from '@jest/globals';
import { pino } from 'pino';
import { openParts } from '../../src/app/compose.ts';
import type { DataPlane, Prepared } from '../../src/app/data-plane.ts';
import type { DeploymentVersion, ReportOptions } from '../../src/app/worker.ts';
import { noAudit } from '../../src/audit/audit.ts';
import { BufferGc } from '../../src/base/buffer-gc.ts';
import { monotonicClock } from '../../src/base/clock.ts';
import { ipcPort } from '../../src/base/message-calls.ts';
import { Fleet } from '../../src/fleet/fleet.ts';
import { WorkerProcess } from '../../src/fleet/worker.ts';
import type { ListenTls } from '../../src/gateway/listener.ts';
import type { AppSetup } from '../../src/setup/setup.ts';
import { closing } from '../support/closing.ts';
import { setupFor } from '../support/gateway.ts';
import { reportedDuring } from '../support/reported.ts';
import { until } from '../support/until.ts';

/** One end of a channel between two processes. */
class ChannelEnd extends EventEmitter {
  readonly pid = 1;
  connected = true;
  other: ChannelEnd | undefined;

  send(message: unknown, _handle: undefined, _options: undefined, done: () => void): boolean {
    setImmediate(() => this.other?.emit('message', structuredClone(message)));
    setImmediate(done);
    return true;
  }
}

/** A data plane that serves nothing, and says what it was asked to do. */
class TestPlane {
  readonly did: string[] = [];
  readonly setups: AppSetup[] = [];
  readonly countedRefusals = [];
  /** The version of its credential in use. */
  version = '1';

  start = async () => [{ address: '127.0.0.1', port: 1 }];
  reopenAccessLog = async (): Promise<void> => void this.did.push('reopen');
  renewTls = async (): Promise<void> => void this.did.push('renew');
  hurry = async (): Promise<void> => void this.did.push('hurry');
  prepare = async (setup: AppSetup): Promise<Pick<Prepared, 'changed'>> => {
    this.setups.push(setup);
    return { changed: [] };
  };
  abandon = (): void => void this.did.push('abandon');
  commit = (): void => void this.did.push('commit');
  settle = async (): Promise<void> => {};
  drain = async (): Promise<void> => {};
  missing = async (): Promise<undefined> => {};
  promote = async ([choice]: readonly DeploymentVersion[]): Promise<void> => {
    this.version = choice?.version ?? '';
  };
  report = async (_options: ReportOptions): Promise<object> => {
    const credentials = [{ credential: 'c', version: this.version, inUse: true }];
    const state = { stage: 'serving', serves: true, errors: [], deployments: [{ name: 'd', credentials }] };
    return { state, metrics: [], lines: [], refusals: [], keysSeen: [] };
  };
}

afterEach(() => {
  jest.restoreAllMocks();
});

/**
 * A fleet of workers in this process. `open`: makes the data plane of each process, which are counted from 1. `ends`: end
 * these processes at once. `killed`: the processes that were killed.
 */
async function fleetOf(workers: number, open: (process: number) => Promise<TestPlane>) {
  const setup = await setupFor({ d: { origin: 'https://u.example.org' } });
  const log = pino({ enabled: false });
  const build = { version: 'test', node: 'v0' };
  const bufferGc = new BufferGc(() => {});
  const options = { log, build, clock: monotonicClock, tracing: undefined, bufferGc };
  const parts = await openParts(setup, options);
  const ends: (() => void)[] = [];
  const killed: number[] = [];
  jest.spyOn(cluster, 'fork').mockImplementation(() => {
    const [primary, own] = [new ChannelEnd(), new ChannelEnd()];
    primary.other = own;
    own.other = primary;
    const port = ipcPort(own as unknown as NodeJS.Process);
    const worker = new EventEmitter();
    const end = (): void => {
      primary.connected = false;
      worker.emit('disconnect');
      primary.emit('disconnect');
      worker.emit('exit', 0, null);
    };
    const number = ends.push(end);
    const openPlane = async () => ({ plane: (await open(number)) as unknown as DataPlane, audit: noAudit });
    setImmediate(() => new WorkerProcess({ port, version: 'test', open: openPlane }).run().then(end));
    const kill = (): void => {
      killed.push(number);
      setImmediate(end);
    };
    return Object.assign(worker, { process: primary, kill }) as unknown as ClusterWorker;
  });
  const idleLogs = { release: async () => {}, keep: async () => {}, close: async () => {} };
  const fleet = new Fleet(setup, { ...parts, workers, stores: [], idleLogs: idleLogs as never });
  closing.push(() => fleet.drain());
  const serves = async (count: number): Promise<boolean> => (await fleet.states()).primary?.serving === count;
  return { setup, fleet, ends, killed, serves, registry: parts.metrics.registry };
}

test('a worker that starts gets another certificate and a renamed access log once it is open, without an error', async () => {
  const [asked, opened] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const plane = new TestPlane();
  const { fleet } = await fleetOf(1, async () => {
    asked.resolve();
    await opened.promise;
    return plane;
  });
  const errors = await reportedDuring(async () => {
    const started = fleet.start();
    await asked.promise;
    fleet.reopenAccessLog();
    fleet.renewTls({ listener: 0, tls: { cert: 'renewed' } as ListenTls });
    fleet.hurry();
    // A message takes one turn to be sent, and one to be received.
    for (let turns = 0; turns < 4; turns += 1) await turn();
    opened.resolve();
    await started;
  });
  expect(errors).toEqual([]);
  expect(plane.setups.map(({ listenTls }) => listenTls[0]?.cert)).toEqual(['renewed']);
  fleet.reopenAccessLog();
  await until(() => plane.did.filter((each) => each === 'reopen').length === 2);
  expect(plane.did).toEqual(['commit', 'reopen', 'reopen']);
});

test('a certificate that is renewed while a worker still prepares a configuration follows the commit of that one', async () => {
  const prepared = Promise.withResolvers<{ changed: string[] }>();
  const [quick, slow] = [new TestPlane(), new TestPlane()];
  slow.prepare = () => prepared.promise;
  const { setup, fleet } = await fleetOf(2, async (process) => (process === 1 ? quick : slow));
  await fleet.start();
  const { settled } = await fleet.activate(setup);
  fleet.renewTls({ listener: 0, tls: { cert: 'renewed' } as ListenTls });
  await until(() => quick.did.includes('renew'));
  prepared.resolve({ changed: [] });
  await settled;
  await until(() => slow.did.includes('renew'));
  expect([quick.did, slow.did]).toEqual([
    ['reopen', 'commit', 'renew'],
    ['reopen', 'commit', 'renew'],
  ]);
});

test('a worker that ends while another one is still starting is replaced', async () => {
  const opened = Promise.withResolvers<void>();
  const { fleet, ends, serves } = await fleetOf(2, async (process) => {
    if (process === 2) await opened.promise;
    return new TestPlane();
  });
  const started = fleet.start();
  await until(() => serves(1));
  ends[0]?.();
  await until(() => serves(0));
  opened.resolve();
  await started;
  await until(() => serves(2));
});

test.each(['is built', 'opens its ports'])('a worker that ends while it %s says how', async (step) => {
  const asked = Promise.withResolvers<void>();
  const hang = (): Promise<never> => {
    asked.resolve();
    return new Promise(() => {});
  };
  const plane = new TestPlane();
  plane.start = hang;
  const { fleet, ends } = await fleetOf(1, step === 'is built' ? hang : async () => plane);
  const started = fleet.start();
  const failed = expect(started).rejects.toThrow(
    'worker 1 cannot be started: its process has ended with exit code 0',
  );
  await asked.promise;
  ends[0]?.();
  await failed;
});

test('what a worker has recorded is kept when it has ended', async () => {
  const audit = {
    records: 98_000,
    failures: 19,
    failing: ['the disk is full'],
    retentionHeld: [],
    integrityErrors: [],
  };
  const plane = new TestPlane();
  plane.report = async () => {
    const state = { stage: 'serving', serves: true, errors: [], deployments: [], audit };
    return { state, metrics: [], lines: [], refusals: [], keysSeen: [] };
  };
  const { fleet, ends } = await fleetOf(1, async (process) => (process === 1 ? plane : new TestPlane()));
  await fleet.start();
  expect((await fleet.states()).former.audit).toBeNull();
  ends[0]?.();
  expect((await fleet.states()).former.audit).toEqual({ ...audit, failing: [] });
});

test.each(['first', 'last'])(
  'a worker that closes while the gateway drains, and refuses a configuration %s, is not killed',
  async (order) => {
    const [asked, leaves] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    const [closed, busy] = [new TestPlane(), new TestPlane()];
    closed.drain = busy.drain = () => leaves.promise;
    closed.prepare = async () => {
      if (order === 'last') await asked.promise;
      throw new Error('the gateway is shutting down');
    };
    const { setup, fleet, killed } = await fleetOf(2, async (process) => (process === 1 ? closed : busy));
    closing.push(asked.resolve, leaves.resolve);
    await fleet.start();
    const drained = fleet.drain();
    const { settled } = await fleet.activate(setup);
    asked.resolve();
    await settled;
    leaves.resolve();
    await drained;
    expect([busy.did, killed]).toEqual([['reopen', 'commit'], []]);
  },
);

test('workers count in the metrics until they end, also while the gateway drains', async () => {
  const leaves = Promise.withResolvers<void>();
  const { fleet, ends, registry } = await fleetOf(2, async () => {
    const plane = new TestPlane();
    plane.drain = () => leaves.promise;
    return plane;
  });
  closing.push(leaves.resolve);
  const counted = async (): Promise<unknown> => {
    await fleet.observe();
    return (await registry.getSingleMetric('digest_gateway_workers')?.get())?.values[0]?.value;
  };
  await fleet.start();
  expect(await counted()).toBe(2);
  const drained = fleet.drain();
  expect(await counted()).toBe(2);
  ends[0]?.();
  await until(async () => (await counted()) === 1);
  leaves.resolve();
  await drained;
});

test('workers that an upgrade replaces follow a reload while they drain, and do not decide about it', async () => {
  const [drains, leaves] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const [old, renewed] = [new TestPlane(), new TestPlane()];
  old.drain = () => {
    drains.resolve();
    return leaves.promise;
  };
  const { setup, fleet, killed } = await fleetOf(1, async (process) => (process === 1 ? old : renewed));
  closing.push(leaves.resolve);
  await fleet.start();
  const upgraded = fleet.upgrade();
  await drains.promise;
  await (await fleet.activate(setup)).settled;
  const prepare = renewed.prepare;
  renewed.prepare = async () => {
    await turn();
    throw new Error('cannot be built');
  };
  await expect(fleet.activate(setup)).rejects.toThrow('cannot be built');
  renewed.prepare = prepare;
  old.prepare = () => Promise.reject(new Error('the gateway is shutting down'));
  await (await fleet.activate(setup)).settled;
  leaves.resolve();
  await upgraded;
  expect([old.did, renewed.did, killed]).toEqual([
    ['reopen', 'commit', 'abandon'],
    ['reopen', 'commit', 'commit'],
    [],
  ]);
});

test('a worker that starts adopts the version that others were promoted to, whoever ends or is late meanwhile', async () => {
  const planes = new Map<number, TestPlane>();
  const plane = (process: number): TestPlane => {
    const its = planes.get(process) ?? new TestPlane();
    planes.set(process, its);
    return its;
  };
  const { fleet, ends } = await fleetOf(3, async (process) => plane(process));
  await fleet.start();
  await fleet.states();
  await fleet.promote([{ deployment: 'd', credential: 'c', version: '2' }]);
  plane(1).report = async () => {
    ends[0]?.();
    return {};
  };
  const second = plane(2).report;
  plane(2).report = async (options) => {
    // The readiness is content with an earlier state after a second.
    await delay(1_100);
    return second(options);
  };
  const served = Promise.withResolvers<string>();
  plane(4).start = async () => {
    served.resolve(plane(4).version);
    return [];
  };
  ends[2]?.();
  expect(await served.promise).toBe('2');
});

test('a worker that ends while an upgrade waits for new ones is replaced, and the replacement leaves with the upgrade', async () => {
  const opened = Promise.withResolvers<void>();
  const { fleet, ends, killed, serves } = await fleetOf(1, async (process) => {
    if (process === 2) await opened.promise;
    return new TestPlane();
  });
  closing.push(opened.resolve);
  await fleet.start();
  const upgraded = fleet.upgrade();
  ends[0]?.();
  await until(() => serves(0));
  await until(() => serves(1));
  opened.resolve();
  await upgraded;
  expect([await serves(1), ends.length, killed]).toEqual([true, 3, []]);
});

test('a worker that ends while one that is too many after an upgrade drains is replaced', async () => {
  const [renewed, replaced] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const [drains, leaves] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const { fleet, ends, killed, serves } = await fleetOf(1, async (process) => {
    const plane = new TestPlane();
    if (process === 2) await renewed.promise;
    if (process === 3) {
      plane.drain = () => {
        drains.resolve();
        return leaves.promise;
      };
      await replaced.promise;
    }
    return plane;
  });
  closing.push(renewed.resolve, replaced.resolve, leaves.resolve);
  await fleet.start();
  const upgraded = fleet.upgrade();
  ends[0]?.();
  await until(() => ends.length === 3);
  renewed.resolve();
  await upgraded;
  replaced.resolve();
  await drains.promise;
  ends[1]?.();
  await until(() => serves(0));
  await until(() => serves(1));
  expect([ends.length, killed]).toEqual([4, []]);
});

test('a fleet that drains does not serve, whatever a worker said last', async () => {
  const leaves = Promise.withResolvers<void>();
  const plane = new TestPlane();
  plane.drain = () => leaves.promise;
  const { fleet } = await fleetOf(1, async () => plane);
  closing.push(leaves.resolve);
  const stages = async () => (await fleet.states()).states.map(({ stage, serves }) => [stage, serves]);
  await fleet.start();
  expect(await stages()).toEqual([['serving', true]]);
  void fleet.drain();
  expect(await stages()).toEqual([['draining', false]]);
});
