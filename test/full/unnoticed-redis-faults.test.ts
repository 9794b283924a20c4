import { isDeepStrictEqual } from 'node:util';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { closedAtEnd, closing } from '../support/closing.ts';
import {
  loseNode,
  moveSlot,
  type RedisCluster,
  type RedisServer,
  startRedis,
  startRedisCluster,
  startRedisSentinel,
} from '../support/redis.ts';
import { redisOptions, single } from '../support/redis-store.ts';
import { startRelay } from '../support/relay.ts';
import {
  areReady,
  CALL_MS,
  expectNoClientToNotice,
  LIFETIME_MS,
  nonceOf,
  readinessOf,
  shareANonce,
  startReplicas,
} from '../support/replicas.ts';
import { until } from '../support/until.ts';

describe('no client notices Redis', () => {
  async function openRedis(): Promise<RedisServer> {
    return closedAtEnd(startRedis());
  }

  interface Fault {
    readonly begin: (redis: RedisServer) => Promise<unknown>;
    readonly end: (redis: RedisServer) => Promise<unknown>;
    readonly failing: readonly string[];
    readonly passing?: readonly string[];
  }

  const EVERY = ['replace', 'lead'];
  /** Operations that a read-only Redis does not refuse. */
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
    await expectNoClientToNotice(await startReplicas(), {
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
    const relay = await closedAtEnd(startRelay(redis.port, () => ({ answerMs })));
    await expectNoClientToNotice(await startReplicas(), {
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

  test('slower than usual but in time: nothing is degraded', async () => {
    const redis = await openRedis();
    let answerMs = 0;
    const relay = await closedAtEnd(startRelay(redis.port, () => ({ answerMs })));
    const { simulator, replica, load: putUnderLoad } = await startReplicas();
    const options = redisOptions(single(relay.port));
    const replicas = [await replica(options), await replica(options)];
    simulator.set('submissions', { nonceLifetimeMs: LIFETIME_MS });
    await until(() => shareANonce(replicas));
    const load = putUnderLoad(replicas);
    answerMs = 20;
    const errors = async (): Promise<number[]> =>
      Promise.all(replicas.map((each) => each.metric('digest_gateway_store_errors_total')));
    // A busy machine can make one call late, and not those of each round, in which a nonce is renewed and shared.
    await until(async () => {
      const before = await errors();
      simulator.reset('submissions');
      await until(
        async () => simulator.counts('submissions').challenges > 0 && (await shareANonce(replicas)),
      );
      return isDeepStrictEqual(await errors(), before);
    });
    const { failures, slowestMs } = await load.end();
    expect(failures).toEqual([]);
    expect(slowestMs).toBeLessThan(CALL_MS);
    await until(() => areReady(replicas));
  });

  test('with a failed master behind Sentinels', async () => {
    const redis = await closedAtEnd(startRedisSentinel({ waits: true }));
    await expectNoClientToNotice(await startReplicas(), {
      redis: redisOptions(redis.servers),
      begin: () => redis.master.kill(),
      end: () => redis.promoted(),
      failing: EVERY,
    });
  });

  test('restarted empty: it gets the nonce in use again, which costs no challenge', async () => {
    const redis = await openRedis();
    const options = redisOptions(single(redis.port));
    const { simulator, replica, load: putUnderLoad } = await startReplicas();
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
});

describe('no client notices in a Cluster that', () => {
  let cluster: RedisCluster;
  beforeAll(async () => {
    cluster = await startRedisCluster(3);
  });
  afterAll(() => cluster.close());
  beforeEach(async () => {
    for (const node of cluster.nodes) await node.command('FLUSHALL');
  });

  interface Shared {
    /** The node with what the gateways share, and one without. */
    readonly owner: RedisServer;
    readonly other: RedisServer;
    readonly slot: number;
  }

  /** Resolves when something is. */
  async function whatIsShared(): Promise<Shared> {
    const keys = () => Promise.all(cluster.nodes.map((node) => node.command('KEYS', 'test:*:shared')));
    await until(async () => (await keys()).flat().length > 0);
    const at = (await keys()).findIndex((held) => String(held) !== '');
    const [owner, other] = [cluster.nodes[at], cluster.nodes[(at + 1) % cluster.nodes.length]];
    const [key] = (await keys()).flat();
    if (owner === undefined || other === undefined) throw new Error('nothing is shared any more');
    return { owner, other, slot: Number(await owner.command('CLUSTER', 'KEYSLOT', String(key))) };
  }

  /** Kills a node; resolves to what starts it again as the member that it was. */
  async function lose(node: RedisServer): Promise<() => Promise<void>> {
    const restart = await loseNode(cluster, node);
    // For the tests that follow, however this one goes.
    closing.push(restart);
    return restart;
  }

  test('the node with the shared state is lost', async () => {
    let back = async (): Promise<void> => {};
    await expectNoClientToNotice(await startReplicas(), {
      redis: redisOptions(cluster.servers),
      begin: async () => {
        back = await lose((await whatIsShared()).owner);
      },
      end: () => back(),
      failing: ['replace', 'lead'],
    });
  });

  /** Two replicas under load, while something happens that they have to get over: nobody else notices. */
  async function expectNobodyToNotice(happens: (shared: Shared) => Promise<unknown>): Promise<void> {
    const { simulator, replica, load: putUnderLoad } = await startReplicas();
    const options = redisOptions(cluster.servers);
    const replicas = [await replica(options), await replica(options)];
    await until(() => shareANonce(replicas));
    const load = putUnderLoad(replicas);
    const { challenges } = simulator.counts('submissions');
    await happens(await whatIsShared());
    await until(() => areReady(replicas));
    const late = await replica(options);
    await until(() => shareANonce([...replicas, late]));
    const { failures, slowestMs } = await load.end();
    expect(failures).toEqual([]);
    expect(slowestMs).toBeLessThan(CALL_MS);
    expect(simulator.counts('submissions').challenges).toBe(challenges);
  }

  test('a node without shared state is lost: nothing stays degraded', async () => {
    await expectNobodyToNotice(({ other }) => lose(other));
  });

  test('the shared state moves to another node', async () => {
    await expectNobodyToNotice(async ({ slot, owner, other }) => {
      await moveSlot(slot, owner, other);
      expect((await whatIsShared()).owner).toBe(other);
    });
  });

  test('the shared state moves away and back while it is configured as one server', async () => {
    const scene = await startReplicas();
    const first = await scene.replica(redisOptions(cluster.servers));
    await nonceOf(first);
    const { owner, other, slot } = await whatIsShared();
    await first.close();
    const pulse = Number(await owner.command('CLUSTER', 'KEYSLOT', 'test:v2:{pulse}'));
    for (const node of cluster.nodes) {
      if (node !== owner && (await serves(node, 'test:v2:{pulse}'))) await moveSlot(pulse, node, owner);
    }
    await expectNoClientToNotice(scene, {
      redis: redisOptions(single(owner.port)),
      begin: async () => {
        for (const each of [pulse, slot]) await moveSlot(each, owner, other);
      },
      end: async () => {
        for (const each of [pulse, slot]) await moveSlot(each, other, owner);
      },
      failing: ['replace', 'lead'],
    });
  });

  /** Whether the slot of this key is the node's. */
  function serves(node: RedisServer, key: string): Promise<boolean> {
    return node.command('EXISTS', key).then(
      () => true,
      () => false,
    );
  }
});
