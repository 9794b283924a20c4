import { randomBytes } from 'node:crypto';
import { mkdir, mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { defaultSettings } from '../../src/simulator/settings.ts';
import { Arrivals, exchangeSecrets, mountedCredential } from '../../test/full/combined-faults.ts';
import { type HaProxy, startHaProxy } from '../../test/support/haproxy.ts';
import { startSwitchedRelay } from '../../test/support/relay.ts';
import { startSimulator } from '../../test/support/simulator.ts';
import { type RedisKind, type RedisSide, startRedisSide } from './redis-side.ts';
import { type Readiness, Replica } from './replica.ts';

export interface ChaosSetup {
  readonly replicas: number;
  readonly workers: number;
  readonly redis: RedisKind;
}

/** Replicas behind HAProxy, with Redis, in front of an upstream with two addresses. */
export interface ChaosScene extends AsyncDisposable {
  readonly replicas: readonly Replica[];
  readonly haProxy: HaProxy;
  readonly redis: RedisSide;
  /** Requests that reached the upstream. */
  readonly arrivals: Arrivals;
  /** When connections to the upstream were reset, on the clock of `performance.now()`; the first address's as it goes. */
  readonly resets: readonly number[];
  /** Requests through the second address so far. */
  readonly throughSecond: number;
  /** Milliseconds that the last replica took to start; the first one may have had to compile. */
  readonly startMs: number;
  reset(): void;
  /** Breaks all connections to the first address, and refuses others until it returns. */
  loseFirstAddress(): Promise<void>;
  returnFirstAddress(): Promise<void>;
  expireNonces(): void;
  /** The upstream takes the password that was the next one, and the files have it with another next one. */
  rotate(): Promise<void>;
  /** Adds a delay to each response; undefined: the usual one. */
  delayResponses(ms: number | undefined): void;
  /** True if HAProxy sends requests to all replicas, and each has all its workers, which can write their audit logs. */
  isServed(): Promise<boolean>;
  /** True if the replicas themselves say that nothing is wrong, too, with Redis either. */
  isWell(): Promise<boolean>;
  /** The state of each replica as far as it is known, as text. */
  describe(): Promise<string[]>;
}

const NAME = 'upstream';
/** Requests are under way whenever something happens. */
const USUAL_DELAY_MS = 5;
/** Requests return to the first address while faults still come. */
const HEALTH = { interval: '500ms', failback: '500ms' };
/**
 * HAProxy repeats GET where a replica is gone, gives no response, or cannot write its audit log. Errors of the upstream
 * go to the client.
 */
const HA_PROXY = {
  defaults: [
    'retries 4',
    'option redispatch 1',
    'retry-on conn-failure empty-response response-timeout 503',
    'timeout server 15s',
  ],
  backend: ['http-request disable-l7-retry unless METH_GET'],
};

/** Said of the next password, which the upstream does not take before the rotation. */
const NEXT = 'the upstream refuses the new version of the credential';

const passwordOf = (round: number): string => `password-${round}`;

export async function startChaosScene({ replicas: count, workers, redis }: ChaosSetup): Promise<ChaosScene> {
  const closing: (() => Promise<unknown>)[] = [];
  const close = async (): Promise<void> => {
    const errors: unknown[] = [];
    for (const each of closing.splice(0).reverse()) await each().catch((error) => errors.push(error));
    if (errors.length > 0) throw new AggregateError(errors, 'the scene did not close');
  };
  try {
    return await openScene({ replicas: count, workers, redis }, closing, close);
  } catch (error) {
    await close().catch(() => undefined);
    throw error;
  }
}

async function openScene(
  setup: ChaosSetup,
  closing: (() => Promise<unknown>)[],
  close: () => Promise<void>,
): Promise<ChaosScene> {
  const redis = await startRedisSide(setup.redis);
  closing.push(() => redis.close());
  const accountsOf = (round: number) => [
    { username: 'demo-user', password: passwordOf(round), sites: ['demo'] },
  ];
  const delayBy = (ms: number) => ({ faults: [{ kind: 'delay' as const, ms }] });
  const { submissions } = defaultSettings().deployments;
  const arrivals = new Arrivals(false);
  const upstream = {
    ...submissions,
    testPaths: true,
    qop: 'auth' as const,
    nc: 'window' as const,
    accounts: accountsOf(0),
    ...delayBy(USUAL_DELAY_MS),
  };
  const simulator = await startSimulator({ deployments: { upstream } }, { observer: arrivals });
  closing.push(() => simulator.close());
  const { port } = simulator.deployments.upstream;
  const first = await startSwitchedRelay(port);
  closing.push(() => first.close());
  const second = await startSwitchedRelay(port);
  closing.push(() => second.close());
  const baseUrl = [first, second].map((address) => `https://127.0.0.1:${address.port}`);
  const folder = await mkdtemp(join(tmpdir(), 'chaos-'));
  closing.push(() => rm(folder, { recursive: true }));
  await exchangeSecrets(folder, passwordOf(0), passwordOf(1));

  const auditKey = randomBytes(32).toString('hex');
  const replicas: Replica[] = [];
  let startMs = 0;
  for (let at = 0; at < setup.replicas; at += 1) {
    const name = `g${at}`;
    const place = join(folder, name);
    await mkdir(place);
    const replica = await Replica.create({
      name,
      folder: place,
      workers: setup.workers,
      deployments: { [NAME]: { origin: '', ca: simulator.ca, settings: { baseUrl, health: HEALTH } } },
      top: { redis: redis.config, credentials: { [NAME]: mountedCredential(folder) } },
      auditKey,
    });
    closing.push(async () => {
      await replica.close();
      await removeSharedClocks(replica.pids);
    });
    const begun = performance.now();
    await replica.start();
    startMs = performance.now() - begun;
    replicas.push(replica);
  }
  const haProxy = await startHaProxy(
    replicas.map(({ name, port, controlPort }) => ({ name, port, controlPort })),
    HA_PROXY,
  );
  closing.push(() => haProxy.close());
  const stateOf = async (replica: Replica) => ({
    inHaProxy: await haProxy.statusOf(replica.name),
    isWhole: await replica.isWhole(setup.workers),
    readiness: await replica.readiness(),
  });
  const isServed = async (): Promise<boolean> => {
    const states = await Promise.all(replicas.map(stateOf));
    // HAProxy finds out a little later than the replica says it.
    return states.every(
      ({ inHaProxy, isWhole, readiness: { status, checks } }) =>
        inHaProxy === 'UP' &&
        isWhole &&
        (status === 'ok' || status === 'degraded') &&
        // A replica of which one worker cannot write serves with the others, and is degraded.
        checks.every(({ name, ok }) => ok || name !== 'audit'),
    );
  };
  const resets: number[] = [];
  let round = 0;
  return {
    replicas,
    haProxy,
    redis,
    arrivals,
    resets,
    get throughSecond() {
      return second.requests;
    },
    startMs,
    reset() {
      resets.push(performance.now());
      for (const address of [first, second]) address.resetAll();
    },
    loseFirstAddress() {
      resets.push(performance.now());
      return first.set('refusing');
    },
    returnFirstAddress: () => first.set('open'),
    expireNonces: () => simulator.reset(NAME),
    async rotate() {
      round += 1;
      simulator.set(NAME, { accounts: accountsOf(round) });
      await exchangeSecrets(folder, passwordOf(round), passwordOf(round + 1));
    },
    delayResponses: (ms = USUAL_DELAY_MS) => simulator.set(NAME, delayBy(ms)),
    isServed,
    async isWell() {
      const states = await Promise.all(replicas.map((replica) => replica.readiness()));
      const isFine = ({ ok, detail }: Readiness['checks'][number]): boolean => ok || detail.startsWith(NEXT);
      return states.every(({ checks }) => checks.every(isFine)) && (await isServed());
    },
    async describe() {
      const states = await Promise.all(replicas.map(stateOf));
      return replicas.map(({ name, lastLines }, at) => `${name} ${JSON.stringify(states[at])}\n${lastLines}`);
    },
    [Symbol.asyncDispose]: close,
  };
}

/** libfaketime leaves these files behind when its process is killed. */
async function removeSharedClocks(pids: ReadonlySet<number>): Promise<void> {
  const folder = '/dev/shm';
  for (const name of await readdir(folder)) {
    const [, pid] = /^(?:sem\.)?faketime_(?:sem|shm)_(\d+)$/.exec(name) ?? [];
    if (pid !== undefined && pids.has(Number(pid))) await rm(join(folder, name), { force: true });
  }
}
