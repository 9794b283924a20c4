import { expect, test } from '@jest/globals';
import { type RedisServer, startRedis } from '../../support/redis.ts';
import { startRedisSentinel } from '../../support/redis-sentinel.ts';
import { redisOptions, single } from '../../support/redis-store.ts';
import { startRelay } from '../../support/relay.ts';
import {
  CALL_MS,
  expectNoClientToNotice,
  nonceOf,
  readinessOf,
  shareANonce,
  useReplicas,
} from '../../support/replica-scene.ts';
import { until } from '../../support/until.ts';

const { closing, setScene } = useReplicas();

async function openRedis(): Promise<RedisServer> {
  const redis = await startRedis();
  closing.push(() => redis.close());
  return redis;
}

interface Fault {
  readonly begin: (redis: RedisServer) => Promise<unknown>;
  readonly end: (redis: RedisServer) => Promise<unknown>;
  readonly failing: readonly string[];
  readonly passing?: readonly string[];
}

const EVERY = ['replace', 'lead'];
/** What a Redis that takes no writes does not refuse. */
const READING = { failing: EVERY, passing: ['load', 'recall'] };

test.each<[string, Fault]>([
  ['killed', { begin: (redis) => redis.kill(), end: (redis) => redis.restart(), failing: EVERY }],
  ['hung', { begin: (redis) => redis.hang(), end: (redis) => redis.goOn(), failing: EVERY }],
  [
    'a replica of a master that is gone',
    {
      begin: (redis) => redis.command('REPLICAOF', '127.0.0.1', 1),
      end: (redis) => redis.command('REPLICAOF', 'NO', 'ONE'),
      ...READING,
    },
  ],
  [
    'out of memory',
    {
      begin: (redis) => redis.command('CONFIG', 'SET', 'maxmemory-policy', 'noeviction', 'maxmemory', '1'),
      end: (redis) => redis.command('CONFIG', 'SET', 'maxmemory', '0'),
      ...READING,
    },
  ],
  ['reading its data', { begin: startLoading, end: endOfLoading, failing: EVERY }],
])('%s', async (_how, { begin, end, ...operations }) => {
  const redis = await openRedis();
  await expectNoClientToNotice(await setScene(), {
    redis: redisOptions(single(redis.port)),
    begin: () => begin(redis),
    end: () => end(redis),
    ...operations,
  });
});

/** Restarts it with a dump that it takes seconds to read. */
async function startLoading(redis: RedisServer): Promise<void> {
  await redis.command('DEBUG', 'POPULATE', 2_000);
  await redis.command('SAVE');
  const dump = await redis.read('dump.rdb');
  await redis.kill();
  await redis.restart({
    settings: ['key-load-delay 1500', 'loading-process-events-interval-bytes 1024'],
    files: { 'dump.rdb': dump },
  });
  await expect(redis.command('GET', 'k')).rejects.toThrow('LOADING');
}

async function endOfLoading(redis: RedisServer): Promise<void> {
  await until(() =>
    redis.command('GET', 'k').then(
      () => true,
      () => false,
    ),
  );
}

test.each([CALL_MS, 4 * CALL_MS])('slow: %i ms for each answer', async (slowMs) => {
  let answerMs = 0;
  const redis = await openRedis();
  const relay = await startRelay(redis.port, () => ({ answerMs }));
  closing.push(() => relay.close());
  await expectNoClientToNotice(await setScene(), {
    redis: redisOptions(single(relay.port)),
    begin: async () => {
      answerMs = slowMs;
    },
    end: async () => {
      answerMs = 0;
    },
    failing: EVERY,
  });
});

test('slower than usual, but in time: nothing is degraded, and all is shared', async () => {
  const redis = await openRedis();
  let answerMs = 0;
  const relay = await startRelay(redis.port, () => ({ answerMs }));
  closing.push(() => relay.close());
  const { simulator, replica, load: putUnderLoad } = await setScene();
  const options = redisOptions(single(relay.port));
  const replicas = [await replica(options), await replica(options)];
  await until(() => shareANonce(replicas));
  const load = putUnderLoad(replicas);
  answerMs = 20;
  simulator.reset('submissions');
  await until(async () => simulator.counts('submissions').accepted > 0 && (await shareANonce(replicas)));
  const { failures, slowestMs } = await load.end();
  expect(failures).toEqual([]);
  expect(slowestMs).toBeLessThan(CALL_MS);
  for (const each of replicas) {
    expect(await readinessOf(each)).toEqual([200, 'ready', true]);
    expect(await each.metric('digest_gateway_store_errors_total')).toBe(0);
  }
});

test('its master lost to a Sentinel', async () => {
  const redis = await startRedisSentinel();
  closing.push(() => redis.close());
  await expectNoClientToNotice(await setScene(), {
    redis: redisOptions(redis.servers),
    begin: () => redis.master.kill(),
    end: () => redis.promoted(),
    failing: EVERY,
  });
});

test('restarted empty: it gets back the nonce in use, which costs no challenge', async () => {
  const redis = await openRedis();
  const options = redisOptions(single(redis.port));
  const { simulator, replica, load: putUnderLoad } = await setScene();
  const replicas = [await replica(options), await replica(options)];
  await until(() => shareANonce(replicas));
  const load = putUnderLoad(replicas);
  const [first] = replicas;
  if (first === undefined) throw new Error('no replica');
  const nonce = await nonceOf(first);
  const { challenges } = simulator.counts('submissions');

  await redis.kill();
  await until(async () => (await readinessOf(first))[1] === 'degraded');
  await redis.restart();
  await until(async () => Number(await redis.command('EXISTS', ...(await sharedPlaces(redis)))) === 1);
  const late = await replica(options);
  expect(await nonceOf(late)).toBe(nonce);
  const { failures, slowestMs } = await load.end();
  expect(failures).toEqual([]);
  expect(slowestMs).toBeLessThan(CALL_MS);
  expect(simulator.counts('submissions').challenges).toBe(challenges);
  expect(await late.metric('digest_gateway_challenges_total')).toBe(0);
});

/** Where challenges are, or a place that is none. */
async function sharedPlaces(redis: RedisServer): Promise<string[]> {
  const keys = await redis.command('KEYS', 'test:*:shared');
  return Array.isArray(keys) && keys.length > 0 ? keys.map(String) : ['none'];
}
