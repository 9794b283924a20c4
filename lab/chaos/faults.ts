import { setTimeout as delay } from 'node:timers/promises';
import { injectFault } from '../../test/support/inject-fault.ts';
import { runCommand } from '../../test/support/program.ts';
import { moveSlot, type RedisServer } from '../../test/support/redis.ts';
import { until } from '../../test/support/until.ts';
import type { Random } from '../simulation/random.ts';
import type { RedisKind, Shard } from './redis-side.ts';
import type { Replica } from './replica.ts';
import type { ChaosScene } from './scene.ts';

/** One fault of a lane is over before the next one of it begins; those of different lanes overlap. */
export const LANES = ['replica', 'redis', 'upstream', 'machine'] as const;
export type Lane = (typeof LANES)[number];

/** A fault's own choices, which follow from the seed alone. */
export interface Choices {
  readonly replica: number;
  /** From 0 to below 1. */
  readonly share: number;
}

export interface Fault {
  readonly name: string;
  readonly lane: Lane;
  /**
   * Failures that it explains: of requests that clients send to the replica itself, and of POST through HAProxy, which
   * repeats GET only (RFC 9110 §9.2.2). Nothing else may fail, but for resets: `ChaosScene.resets`.
   */
  readonly explains: readonly ('direct' | 'post')[];
  /** Undefined: with each. */
  readonly redis?: readonly RedisKind[];
  /** Begins it, and resolves when it is over. */
  run(scene: ChaosScene, choices: Choices): Promise<void>;
}

/** A worker that gives no sign of life is replaced after 5 s. */
const HANG_LIMIT_MS = 60_000;
const RELOAD_LIMIT_MS = 60_000;
const TAKE_OVER_LIMIT_MS = 20_000;
const HOUR_S = 3_600;
/** The gateway says whole seconds, and may say them late. */
const CLOCK_ERROR_S = 60;
const BOTH = ['direct', 'post'] as const;

const between = ({ share }: Choices, low: number, high: number): number => low + share * (high - low);

export function drawChoices(random: Random, replicas: number): Choices {
  return { replica: random.whole(0, replicas - 1), share: random.next() };
}

function replicaFault(
  name: string,
  explains: Fault['explains'],
  run: (replica: Replica, choices: Choices) => Promise<void>,
): Fault {
  return {
    name,
    lane: 'replica',
    explains,
    run: (scene, choices) => run(scene.replicas[choices.replica] as Replica, choices),
  };
}

async function someWorker(replica: Replica, { share }: Choices): Promise<number> {
  const workers = await replica.workers();
  const worker = workers[Math.floor(share * workers.length)];
  if (worker === undefined) throw new Error(`${replica.name} has no worker`);
  return worker;
}

/** Signals a process that may be gone. */
function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch {
    // It has ended meanwhile, as the fault before may have it.
  }
}

async function stopped(pids: readonly number[], ms: number): Promise<void> {
  for (const pid of pids) signal(pid, 'SIGSTOP');
  await delay(ms);
  for (const pid of pids) signal(pid, 'SIGCONT');
}

/** The shard that a seed chooses, which is the same one again only where there is one. */
async function someShard({ redis }: ChaosScene, { share }: Choices): Promise<Shard> {
  const shards = await redis.shards();
  return shards[Math.floor(share * shards.length)] as Shard;
}

async function hang({ redis }: ChaosScene, choices: Choices, server: RedisServer): Promise<void> {
  await server.hang();
  await delay(between(choices, 50, 2_000));
  await server.goOn();
  await redis.shards();
}

/** The slots of all keys that a node of a Cluster has. */
async function slotsWithKeys(node: RedisServer): Promise<number[]> {
  const keys = (await node.command('KEYS', '*')) as string[];
  const slots = await Promise.all(keys.map((key) => node.command('CLUSTER', 'KEYSLOT', key)));
  return [...new Set(slots.map(Number))];
}

let changes = 0;

const REPLICA_FAULTS: readonly Fault[] = [
  replicaFault('kill -9 of a gateway, and its restart', BOTH, async (replica, choices) => {
    await replica.end('kill');
    await delay(between(choices, 0, 1_000));
    await replica.start();
  }),
  replicaFault('kill -9 of a worker', BOTH, async (replica, choices) => {
    const worker = await someWorker(replica, choices);
    signal(worker, 'SIGKILL');
    await until(async () => !(await replica.workers()).includes(worker), HANG_LIMIT_MS);
  }),
  replicaFault('stop of a gateway with its workers', [], async (replica, choices) => {
    await stopped(await replica.processes(), between(choices, 200, 2_000));
  }),
  replicaFault('stop of a worker', [], async (replica, choices) => {
    await stopped([await someWorker(replica, choices)], between(choices, 200, 2_000));
  }),
  replicaFault('a worker that hangs for good', BOTH, async (replica, choices) => {
    const worker = await someWorker(replica, choices);
    signal(worker, 'SIGSTOP');
    await until(async () => !(await replica.workers()).includes(worker), HANG_LIMIT_MS);
  }),
  replicaFault('drain of a gateway, and its restart', ['direct'], async (replica) => {
    await replica.end('drain');
    await replica.start();
  }),
  replicaFault('replacement of the workers (SIGUSR2)', [], async (replica) => {
    const before = await replica.workers();
    signal(replica.process.pid, 'SIGUSR2');
    await until(async () => {
      const now = await replica.workers();
      return now.length === before.length && now.every((pid) => !before.includes(pid));
    }, HANG_LIMIT_MS);
  }),
  replicaFault('reload', [], async (replica) => {
    changes += 1;
    const { logged } = replica.process;
    const from = logged.length;
    await replica.reload((config) => {
      // Workers divide them among each other, so that one more may change nothing.
      Object.assign((config['deployments'] as { upstream: object }).upstream, {
        connections: 64 + 2 * changes,
      });
    });
    const isDone = ({ changed }: Record<string, unknown>): boolean =>
      Array.isArray(changed) && changed.includes('deployments.upstream');
    await until(() => logged.slice(from).some(isDone), RELOAD_LIMIT_MS);
  }),
  replicaFault('reload of a bad configuration', [], async (replica) => {
    const { logged } = replica.process;
    const from = logged.length;
    await replica.reload((config) => {
      config['anonymous'] = 'perhaps';
    });
    const isRefused = ({ msg }: Record<string, unknown>): boolean =>
      String(msg).startsWith('configuration refused');
    await until(() => logged.slice(from).some(isRefused), RELOAD_LIMIT_MS);
    await replica.reload((config) => {
      config['anonymous'] = true;
    });
  }),
  replicaFault('audit disk full', BOTH, async (replica, choices) => {
    await replica.fillDisk();
    await delay(between(choices, 500, 2_000));
    await replica.emptyDisk();
  }),
  replicaFault('audit disk read-only', BOTH, async (replica, choices) => {
    const pids = await replica.processes();
    const ends = await Promise.all(pids.map((pid) => injectFault(pid, 'fdatasync:error=EROFS')));
    await delay(between(choices, 500, 1_500));
    await Promise.all(ends.map((end) => end()));
  }),
  replicaFault('clock jump', [], async (replica, choices) => {
    // The certificates of the simulator are valid from an hour before its start.
    const ahead = Math.round(between(choices, -0.8, 24) * HOUR_S);
    await replica.setClock(ahead);
    await until(async () => Math.abs((await replica.clock()) - ahead) < CLOCK_ERROR_S, RELOAD_LIMIT_MS);
  }),
];

const REDIS_FAULTS: readonly Fault[] = [
  {
    name: 'kill -9 of Redis, and its restart, empty',
    lane: 'redis',
    explains: [],
    redis: ['alone'],
    async run(scene, choices) {
      const { master } = await someShard(scene, choices);
      await master.kill();
      await delay(between(choices, 0, 2_000));
      await master.restart();
    },
  },
  {
    name: 'kill -9 of a master, and failover',
    lane: 'redis',
    explains: [],
    redis: ['sentinel', 'cluster'],
    run: async (scene, choices) => scene.redis.failOver(await someShard(scene, choices)),
  },
  {
    name: 'slots with keys move to another master',
    lane: 'redis',
    explains: [],
    redis: ['cluster'],
    async run({ redis }, choices) {
      const masters = (await redis.shards()).map(({ master }) => master);
      const slots = await Promise.all(masters.map(slotsWithKeys));
      const first = Math.floor(choices.share * masters.length);
      const order = masters.map((_, at) => (first + at) % masters.length);
      const at = order.find((each) => slots[each]?.length !== 0) ?? first;
      const [from, to] = [masters[at], masters[(at + 1) % masters.length]] as [RedisServer, RedisServer];
      const pauseMs = between(choices, 0, 700);
      await Promise.all((slots[at] ?? []).map((slot) => moveSlot(slot, from, to, pauseMs)));
      await redis.shards();
    },
  },
  {
    name: 'stop of Redis',
    lane: 'redis',
    explains: [],
    run: async (scene, choices) => hang(scene, choices, (await someShard(scene, choices)).master),
  },
  {
    // The subscription of a gateway can be there.
    name: 'stop of a replica of Redis',
    lane: 'redis',
    explains: [],
    redis: ['sentinel', 'cluster'],
    async run(scene, choices) {
      const { master, replica = master } = await someShard(scene, choices);
      await hang(scene, choices, replica);
    },
  },
  {
    name: 'FLUSHALL',
    lane: 'redis',
    explains: [],
    async run({ redis }) {
      for (const { master } of await redis.shards()) await master.command('FLUSHALL');
    },
  },
  {
    name: 'connections to Redis closed',
    lane: 'redis',
    explains: [],
    async run({ redis }) {
      for (const { master } of await redis.shards()) await master.command('CLIENT', 'KILL', 'TYPE', 'normal');
    },
  },
];

const UPSTREAM_FAULTS: readonly Fault[] = [
  {
    name: 'all nonces expire',
    lane: 'upstream',
    explains: [],
    run: async (scene) => scene.expireNonces(),
  },
  {
    name: 'the credential rotates',
    lane: 'upstream',
    explains: [],
    async run(scene) {
      const before = scene.replicas.map(({ starts, credentialChanges }) => ({ starts, credentialChanges }));
      await scene.rotate();
      const hasTakenOver = ({ starts, credentialChanges }: Replica, at: number): boolean =>
        starts !== before[at]?.starts || credentialChanges > (before[at]?.credentialChanges ?? 0);
      // A replica that starts just now may have read the new files.
      await until(() => scene.replicas.every(hasTakenOver), TAKE_OVER_LIMIT_MS).catch(() => undefined);
    },
  },
  {
    name: 'connections to the upstream reset',
    lane: 'upstream',
    explains: [],
    run: async (scene) => scene.reset(),
  },
  {
    name: 'the first address of the upstream is gone, and back',
    lane: 'upstream',
    explains: [],
    async run(scene, choices) {
      const before = scene.throughSecond;
      await scene.loseFirstAddress();
      await delay(between(choices, 200, 3_000));
      await until(() => scene.throughSecond > before);
      await scene.returnFirstAddress();
    },
  },
  {
    name: 'the upstream is slow',
    lane: 'upstream',
    explains: [],
    async run(scene, choices) {
      scene.delayResponses(Math.round(between(choices, 100, 800)));
      await delay(1_500);
      scene.delayResponses(undefined);
    },
  },
];

const MACHINE_FAULTS: readonly Fault[] = [
  {
    name: 'memory pressure',
    lane: 'machine',
    explains: [],
    async run() {
      await runCommand('stress-ng', ['--vm', '1', '--vm-bytes', '1g', '--timeout', '2s', '--quiet']);
    },
  },
];

export const FAULTS: readonly Fault[] = [
  ...REPLICA_FAULTS,
  ...REDIS_FAULTS,
  ...UPSTREAM_FAULTS,
  ...MACHINE_FAULTS,
];
