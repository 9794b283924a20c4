import { afterEach, expect, test } from '@jest/globals';
import type { ChallengeStore } from '../../../src/challenges/store/store.ts';
import { parked } from '../../support/challenges.ts';
import { type RedisServer, startRedis } from '../../support/redis.ts';
import { openWatched, redisOptions, single } from '../../support/redis-store.ts';
import { seesRedis, useReplicas } from '../../support/replica-scene.ts';
import type { RunningGateway } from '../../support/running-gateway.ts';
import { authors } from '../../support/simulated-pair.ts';
import { until } from '../../support/until.ts';

const LONG_MS = 60_000;
const replicas = useReplicas();
const closing: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
});

const isExclusive = async (gateway: RunningGateway): Promise<boolean> =>
  (await gateway.metric('digest_gateway_nonce_policy', { policy: 'exclusive' })) === 1;

/** Two gateways on one Redis, of which one has learned that nonces serve one request at a time. */
async function learnedOnOne(redis: RedisServer): Promise<{ replica: () => Promise<RunningGateway> }> {
  const scene = await replicas.setScene({
    qop: 'auth',
    oneTimeNonces: true,
    nextnonce: 'always',
    staleFlag: 'never',
  });
  const replica = (): Promise<RunningGateway> => scene.replica(redisOptions(single(redis.port)));
  const one = await replica();
  await until(async () => {
    const asked = Array.from({ length: 10 }, () => fetch(`${one.origin}${authors}`));
    await Promise.all((await Promise.all(asked)).map((response) => response.text()));
    return isExclusive(one);
  });
  return { replica };
}

async function open(redis: RedisServer): Promise<ChallengeStore> {
  const { store, up } = openWatched(single(redis.port));
  closing.push(() => store.close());
  await up();
  return store;
}

test.each([
  ['while connections stay', (redis: RedisServer) => redis.command('FLUSHALL')],
  ['by a restart', (redis: RedisServer) => redis.restart()],
] as const)('what was learned is shared again after Redis was emptied %s', async (_title, empty) => {
  const redis = await startRedis();
  replicas.closing.push(() => redis.close());
  const { replica } = await learnedOnOne(redis);
  const holds = async (): Promise<boolean> =>
    ((await redis.command('KEYS', '*:learned')) as string[]).length > 0;
  await until(holds);
  await empty(redis);
  await until(holds, 10_000);
  const late = await replica();
  await until(() => seesRedis(late));
  await until(() => isExclusive(late));
});

test('a nonce whose removal is lost in a failover gets no second owner', async () => {
  const master = await startRedis();
  closing.push(() => master.close());
  const replica = await startRedis({ settings: [`replicaof 127.0.0.1 ${master.port}`] });
  closing.push(() => replica.close());
  const store = await open(master);
  await store.park('k', parked('n', 3), LONG_MS);
  await until(async () => ((await replica.command('KEYS', '*:parked')) as string[]).length === 1);
  await replica.command('REPLICAOF', 'NO', 'ONE');
  expect((await store.take('k'))?.challenge.nonce).toBe('n');
  const promoted = await open(replica);
  expect(await promoted.take('k')).toBeUndefined();
  await promoted.park('k', parked('m', 1), LONG_MS);
  expect((await promoted.take('k'))?.challenge.nonce).toBe('m');
});
