import { expect } from '@jest/globals';
import type { RedisStoreOptions } from '../../src/challenges/store/redis.ts';
import { closing } from './closing.ts';
import { type RunningGateway, startGateway } from './gateway.ts';
import { CLIENTS, type LoadSeen, type SteadyLoad, startLoad } from './load.ts';
import { type RunningScene, type SceneOptions, startScene } from './scene.ts';
import { until } from './until.ts';

/**
 * The longest that a call of Redis may take here, in milliseconds. A request that waits for Redis takes that long; no
 * other does, on a slow machine either.
 */
export const CALL_MS = 500;
/** How soon state is shared again, in milliseconds. */
const BACK_MS = 10_000;
/** How long nonces live under load: long enough for a busy machine, short enough for several within a fault. */
export const LIFETIME_MS = 1_500;
/** From this age on a nonce is renewed. */
const RENEWED_MS = 0.7 * LIFETIME_MS;

/** Gateways that share a Redis, in front of one simulator. */
export interface Replicas {
  readonly simulator: RunningScene['simulator'];
  /** Another gateway on this Redis, which need not be there; otherwise it is awaited. */
  replica(redis: RedisStoreOptions, isThere?: boolean): Promise<RunningGateway>;
  /** Puts these gateways under load; it ends with the test at the latest. */
  load(gateways: readonly RunningGateway[]): SteadyLoad;
}

/** Starts them for one test, at whose end they end, last ones first. */
export async function startReplicas(options: SceneOptions = {}): Promise<Replicas> {
  const { simulator, deployment } = await startScene(options);
  return {
    simulator,
    async replica(redis, isThere = true) {
      const gateway = await startGateway(
        { submissions: deployment },
        {},
        { redis: { ...redis, timeoutMs: CALL_MS } },
      );
      closing.push(() => gateway.close());
      if (isThere) await until(() => seesRedis(gateway));
      return gateway;
    },
    load(gateways) {
      const load = startLoad(gateways.map(({ origin }) => origin));
      closing.push(() => load.end());
      return load;
    },
  };
}

export async function seesRedis(gateway: RunningGateway): Promise<boolean> {
  return (await gateway.metric('digest_gateway_store_up')) === 1;
}

/** The nonce that a request through this gateway reaches the upstream with. */
export async function nonceOf({ origin }: Pick<RunningGateway, 'origin'>): Promise<string> {
  const echo = await (await fetch(`${origin}/echo`)).text();
  const [, nonce] = /nonce=\\"([^"\\]+)/.exec(echo) ?? [];
  if (nonce === undefined) throw new Error(`no nonce in ${echo}`);
  return nonce;
}

/** Whether requests through all of them reach the upstream with the same one. */
export async function shareANonce(gateways: readonly RunningGateway[]): Promise<boolean> {
  return new Set(await Promise.all(gateways.map(nonceOf))).size === 1;
}

/** Status and content of `/readyz`, and whether Redis is said to be fine. */
export async function readinessOf({ control }: RunningGateway): Promise<[number, string, boolean]> {
  const answer = await fetch(`${control}/readyz`);
  const { status, checks } = (await answer.json()) as {
    status: string;
    checks: { name: string; ok: boolean }[];
  };
  return [answer.status, status, checks.find(({ name }) => name === 'store')?.ok ?? false];
}

const READY = [200, 'ok', true] as const;
const DEGRADED = [200, 'degraded', false] as const;

async function areAll(gateways: readonly RunningGateway[], state: readonly unknown[]): Promise<boolean> {
  const all = await Promise.all(gateways.map(readinessOf));
  return all.every((each) => JSON.stringify(each) === JSON.stringify(state));
}

export function areReady(gateways: readonly RunningGateway[]): Promise<boolean> {
  return areAll(gateways, READY);
}

export interface RedisFault {
  readonly redis: RedisStoreOptions;
  /** Resolves when Redis is as the fault has it. */
  readonly begin: () => Promise<unknown>;
  /** Resolves when Redis is well. */
  readonly end: () => Promise<unknown>;
  /** Operations of the store that fail meanwhile, of those that the load leads to. */
  readonly failing: readonly string[];
  /** … and those that do not. */
  readonly passing?: readonly string[];
}

/** Two replicas under load go through a fault of Redis: no client notices, everybody else is told. */
export async function expectNoClientToNotice(scene: Replicas, fault: RedisFault): Promise<LoadSeen> {
  const { redis, begin, end, failing, passing = [] } = fault;
  const { simulator } = scene;
  simulator.set('submissions', { nonceLifetimeMs: LIFETIME_MS });
  simulator.reset('submissions');
  const replicas = [await scene.replica(redis), await scene.replica(redis)];
  const sumOf = async (name: string, labels = {}): Promise<number> => {
    const counts = await Promise.all(replicas.map((each) => each.metric(`digest_gateway_${name}`, labels)));
    return counts.reduce((sum, count) => sum + count, 0);
  };
  const errors = (operation: string) => sumOf('store_errors_total', { operation });
  await until(() => shareANonce(replicas));
  const load = scene.load(replicas);
  await until(async () => (await sumOf('challenges_total', { reason: 'ahead' })) > 0);
  await until(() => areReady(replicas));

  await begin();
  await until(() => areAll(replicas, DEGRADED));
  expect(await sumOf('store_up')).toBe(0);
  const begun = performance.now();
  const alone = await sumOf('challenges_total');
  await until(async () => (await sumOf('challenges_total')) >= alone + 2);
  const more = (await sumOf('challenges_total')) - alone;
  const lives = (performance.now() - begun) / RENEWED_MS + 2;
  // At the end of a life each client may have a request under way.
  expect(more).toBeLessThanOrEqual(replicas.length * CLIENTS * lives);
  for (const operation of failing) await until(async () => (await errors(operation)) > 0);
  for (const operation of passing) expect([operation, await errors(operation)]).toEqual([operation, 0]);
  // Where answers take as long as a call may take, one now and then is in time.
  await until(() => areAll(replicas, DEGRADED));

  await end();
  await until(async () => (await areReady(replicas)) && (await shareANonce(replicas)), BACK_MS);
  const late = await scene.replica(redis);
  replicas.push(late);
  await until(() => shareANonce(replicas));
  expect(await late.metric('digest_gateway_challenges_total', { reason: 'cold' })).toBe(0);
  const seen = await load.end();
  expect(seen.failures).toEqual([]);
  expect(seen.slowestMs).toBeLessThan(CALL_MS);
  await until(async () => (await sumOf('challenges_total')) === simulator.counts('submissions').challenges);
  expect(simulator.counts('submissions').refused['wrong-response']).toBe(0);
  return seen;
}
