import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import { setImmediate } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { Redis } from 'ioredis';
import { scripts } from '../../../../src/challenges/store/redis-scripts.ts';
import type { ChallengeStore } from '../../../../src/challenges/store/store.ts';
import { connectCommands, ended } from '../../../../src/redis/connection.ts';
import { aged, learned, parked } from '../../../support/challenges.ts';
import { closedAtEnd, closing } from '../../../support/closing.ts';
import type { RunningGateway } from '../../../support/gateway.ts';
import { listenOnLoopback } from '../../../support/loopback-server.ts';
import { type RedisServer, startRedis } from '../../../support/redis.ts';
import {
  CALL_MS,
  inTime,
  openWatched,
  redisOptions,
  single,
  type WatchedStore,
} from '../../../support/redis-store.ts';
import { seesRedis, startReplicas } from '../../../support/replicas.ts';
import { authors } from '../../../support/scene.ts';
import { until } from '../../../support/until.ts';

const LONG_MS = 60_000;

describe('a Redis', () => {
  /** How soon state is shared again, in milliseconds; a quiet machine takes a fifth of it. */
  const BACK_LIMIT_MS = 10_000;
  /** Longer than several calls. */
  const SLOW_MS = 4 * CALL_MS;

  let redis: RedisServer;
  let watched: WatchedStore;
  let other: WatchedStore;
  beforeEach(async () => {
    redis = await startRedis();
    [watched, other] = [
      openWatched(single(redis.port), { timeoutMs: CALL_MS }),
      openWatched(single(redis.port), { timeoutMs: CALL_MS }),
    ];
    await Promise.all([watched.up(), other.up()]);
  });
  afterEach(async () => {
    await Promise.all([watched.store.close(), other.store.close()]);
    await redis.close();
  });

  /** Every call of a store, all at once; resolves to how each ended. */
  function everyCall({ store }: WatchedStore): Promise<('resolved' | 'rejected' | 'late')[]> {
    const calls = [
      store.load('k'),
      store.replace('k', undefined, aged('late'), LONG_MS),
      store.park('k', parked('late', 7), LONG_MS),
      store.take('k'),
      store.recall('k'),
      store.learn('k', learned),
      store.lead('k', LONG_MS),
    ];
    return Promise.all(
      calls.map((call) =>
        inTime(
          call.then(
            () => 'resolved' as const,
            () => 'rejected' as const,
          ),
        ),
      ),
    );
  }

  async function expectAllToFailInTime(store: WatchedStore): Promise<void> {
    const outcomes = await everyCall(store);
    expect(outcomes).toEqual(outcomes.map(() => 'rejected'));
  }

  /** Nothing that was asked for while Redis was away has happened since. */
  async function expectNoLateSurprise(): Promise<void> {
    expect(await other.store.load('k')).toBeUndefined();
    expect(await other.store.take('k')).toBeUndefined();
    expect(await other.store.recall('k')).toBeUndefined();
    expect(await other.store.lead('k', LONG_MS)).toBe(true);
  }

  async function expectToShare(): Promise<void> {
    // A store takes notice only of keys that it uses, and the message may come before the reply that `replace` waits for.
    await other.store.load('shared');
    await watched.store.replace('shared', undefined, aged('1'), LONG_MS);
    expect((await other.store.load('shared'))?.challenge.nonce).toBe('1');
    await until(() => other.changes.includes('shared'));
  }

  describe('that is killed:', () => {
    test('calls fail at once; after its empty restart state is shared and read again', async () => {
      await watched.store.replace('k', undefined, aged('1'), LONG_MS);
      await redis.kill();
      await expectAllToFailInTime(watched);
      await watched.down();
      await expectAllToFailInTime(watched);
      watched.changes.splice(0);

      await redis.restart();
      expect(await watched.up()).toBeLessThan(BACK_LIMIT_MS);
      await other.up();
      await until(() => watched.changes.includes('k'));
      await expectNoLateSurprise();
      await expectToShare();
      expect(watched.states).toEqual(['up', expect.stringMatching(/no connection|ECONNREFUSED/), 'up']);
    });

    test('every call under way ends', async () => {
      let calls = 0;
      let failed = 0;
      let going = true;
      const worker = async (name: string): Promise<void> => {
        while (going) {
          calls += 1;
          await watched.store.replace(name, undefined, aged(`${calls}`), LONG_MS).catch(() => {
            failed += 1;
          });
          // Calls that fail at once would leave no turn for anything else.
          await setImmediate();
        }
      };
      const workers = ['a', 'b', 'c', 'd'].map(worker);
      await until(() => calls > 200);
      await redis.kill();
      await watched.down();
      going = false;
      await Promise.all(workers);
      expect(failed).toBeGreaterThan(0);
      expect(watched.failures).toHaveLength(failed);
      expect(new Set(watched.failures.map(({ operation }) => operation))).toEqual(new Set(['replace']));
    });
  });

  describe('that hangs:', () => {
    test('calls end in time and take no effect later', async () => {
      await redis.hang();
      await expectAllToFailInTime(watched);
      await expectAllToFailInTime(watched);
      await watched.down();
      // The silence of the connection may be noticed first.
      expect(watched.states).toEqual(['up', expect.stringMatching(/did not answer|Socket timeout/)]);

      await redis.goOn();
      expect(await watched.up()).toBeLessThan(BACK_LIMIT_MS);
      await other.up();
      await expectNoLateSurprise();
      await expectToShare();
    });

    test('for longer than a connection is kept, and comes back', async () => {
      await redis.hang();
      await watched.down();
      const start = performance.now();
      await until(() => performance.now() - start > 1_500);
      await redis.goOn();
      expect(await watched.up()).toBeLessThan(BACK_LIMIT_MS);
      await other.up();
      await expectToShare();
    });
  });

  describe('that is slow:', () => {
    test('calls end in time and take no effect later', async () => {
      await redis.command('CLIENT', 'PAUSE', SLOW_MS, 'ALL');
      await expectAllToFailInTime(watched);
      await watched.down();
      expect(await watched.up()).toBeLessThan(SLOW_MS + BACK_LIMIT_MS);
      await other.up();
      await expectNoLateSurprise();
      await expectToShare();
    });
  });

  test('gets a call again that failed alone', async () => {
    const patient = openWatched(single(redis.port), { timeoutMs: CALL_MS });
    try {
      await patient.up();
      await patient.store.load('k');
      await redis.hang();
      await expect(patient.store.learn('k', learned)).rejects.toThrow(String(CALL_MS));
      // Before the heartbeat that follows gives up.
      await redis.goOn();
      await until(() => patient.changes.includes('k'));
    } finally {
      await patient.store.close();
    }
  });

  test('does not make a nonce younger by executing a call late', async () => {
    await watched.store.replace('k', undefined, aged('1'), LONG_MS);
    await redis.hang();
    await expect(watched.store.replace('k', '1', aged('2'), LONG_MS)).rejects.toThrow(String(CALL_MS));
    await redis.goOn();
    await other.up();
    await until(() => other.store.load('k').then(Boolean, () => false));
    expect((await other.store.load('k'))?.challenge.nonce).toBe('1');
  });

  test('whose subscription breaks alone is read again', async () => {
    await other.store.load('k');
    other.changes.splice(0);
    await redis.command('CLIENT', 'KILL', 'TYPE', 'pubsub');
    await until(() => other.changes.includes('k'));
    expect(other.failures).toEqual([]);
    await expectToShare();
  });

  test('keeps no connection of a closed store', async () => {
    const clients = async (): Promise<number> =>
      String(await redis.command('CLIENT', 'LIST')).match(/name=digest-gateway/g)?.length ?? 0;
    expect(await clients()).toBe(4);
    await watched.store.close();
    await until(async () => (await clients()) === 2);
    await expect(watched.store.load('k')).rejects.toThrow();
  });
});

describe('a Redis that replies with errors:', () => {
  let redis: RedisServer;
  let watched: WatchedStore;
  beforeEach(async () => {
    redis = await startRedis();
    watched = openWatched(single(redis.port));
    await watched.up();
  });
  afterEach(async () => {
    await watched.store.close();
    await redis.close();
  });

  /** Reading goes on, writing is refused with this error, and the store is known to be down. */
  async function expectWritesRefused(error: string): Promise<void> {
    const { store } = watched;
    await expect(store.replace('k', '1', aged('2'), LONG_MS)).rejects.toThrow(error);
    await expect(store.park('k', parked('2', 1), LONG_MS)).rejects.toThrow(error);
    await expect(store.lead('k', LONG_MS)).rejects.toThrow(error);
    await watched.down();
    expect(watched.states.at(-1)).toContain(error);
    expect(watched.failures.map(({ operation }) => operation)).toEqual(['replace', 'park', 'lead']);
    // The connection to a replica is opened anew.
    const read = (): Promise<unknown> => store.load('k').then((held) => held?.challenge.nonce, String);
    await until(async () => (await read()) === '1');
  }

  test('a replica accepts no writes until it is a master', async () => {
    await watched.store.replace('k', undefined, aged('1'), LONG_MS);
    // With a master that is not there, the replica keeps what it has.
    await redis.command('REPLICAOF', '127.0.0.1', 1);
    await expectWritesRefused('READONLY');
    await redis.command('REPLICAOF', 'NO', 'ONE');
    expect(await watched.up()).toBeLessThan(10_000);
    expect((await watched.store.replace('k', '1', aged('2'), LONG_MS)).challenge.nonce).toBe('2');
  });

  test('a replica is left for the master that its address leads to', async () => {
    const replica = await closedAtEnd(startRedis({ settings: [`replicaof 127.0.0.1 ${redis.port}`] }));
    let target = redis.port;
    const address = createServer((client) => {
      const server = connect(target, '127.0.0.1');
      for (const socket of [client, server]) socket.on('error', () => undefined);
      client.on('close', () => server.destroy());
      server.on('close', () => client.destroy());
      client.pipe(server).pipe(client);
    });
    const { port, close } = await listenOnLoopback(address);
    closing.push(close);
    const moved = openWatched(single(port));
    closing.push(() => moved.store.close());
    await moved.up();
    await replica.command('REPLICAOF', 'NO', 'ONE');
    await redis.command('REPLICAOF', '127.0.0.1', replica.port);
    target = replica.port;
    await moved.down();
    await moved.up();
    expect(await moved.store.lead('k', LONG_MS)).toBe(true);
  });

  test('a full memory accepts no writes until there is room', async () => {
    await watched.store.replace('k', undefined, aged('1'), LONG_MS);
    await redis.command('CONFIG', 'SET', 'maxmemory-policy', 'noeviction', 'maxmemory', '1');
    await expectWritesRefused('OOM');
    await redis.command('CONFIG', 'SET', 'maxmemory', '0');
    expect(await watched.up()).toBeLessThan(10_000);
    expect((await watched.store.replace('k', '1', aged('2'), LONG_MS)).challenge.nonce).toBe('2');
  });

  test('one that is loading its data is down until it has finished', async () => {
    await redis.command('DEBUG', 'POPULATE', 2_000);
    await redis.command('SAVE');
    const dump = await redis.read('dump.rdb');
    await redis.kill();
    await watched.down();
    await redis.restart({
      settings: ['key-load-delay 500', 'loading-process-events-interval-bytes 1024'],
      files: { 'dump.rdb': dump },
    });
    await expect(redis.command('GET', 'k')).rejects.toThrow('LOADING');
    await expect(watched.store.load('k')).rejects.toThrow();
    await watched.up();
    expect(await watched.store.lead('k', LONG_MS)).toBe(true);
  });

  test('an unreadable value counts as absent and is replaced', async () => {
    const { store } = watched;
    await store.replace('k', undefined, aged('1'), LONG_MS);
    await store.park('k', parked('1', 1, 100), LONG_MS);
    await store.learn('k', learned);
    const client = new Redis(redis.port, '127.0.0.1');
    const [shared = '', waiting = '', knowledge = ''] = await Promise.all(
      ['shared', 'parked', 'learned'].map(async (part) => (await client.keys(`test:*:${part}`))[0]),
    );
    const value = String(await client.hget(shared, 'value'));

    for (const corrupt of ['', '{', '[]', '{"v":2}', value.replace('1', '1\\r\\nX: y')]) {
      await client.hset(shared, 'nonce', '1', 'value', corrupt, 'max', LONG_MS);
      await client.pexpire(shared, LONG_MS);
      expect(await store.load('k')).toBeUndefined();
      expect((await store.replace('k', undefined, aged('2'), LONG_MS)).challenge.nonce).toBe('2');
      expect((await store.load('k'))?.challenge.nonce).toBe('2');
    }
    await client.persist(shared);
    expect(await store.load('k')).toBeUndefined();

    await client.zadd(waiting, Date.now() + 1_000, '60000 {}', Date.now() + 2_000, 'nothing');
    expect((await store.take('k'))?.challenge.nonce).toBe('1');
    await client.set(knowledge, '{"v":1,"policy":"never"}');
    expect(await store.recall('k')).toBeUndefined();

    await client.set(shared, 'another type');
    expect(await store.load('k')).toBeUndefined();
    expect((await store.replace('k', undefined, aged('3'), LONG_MS)).challenge.nonce).toBe('3');
    await client.set(waiting, 'another type');
    expect(await store.take('k')).toBeUndefined();
    await store.park('k', parked('3', 1), LONG_MS);
    expect((await store.take('k'))?.challenge.nonce).toBe('3');
    await client.del(knowledge);
    await client.rpush(knowledge, 'another type');
    expect(await store.recall('k')).toBeUndefined();

    await client.publish('test:v2:changes', 'nonsense');
    await client.quit();
    expect(watched.failures).toEqual([]);
  });

  test('any other error is a rejected call, and no more', async () => {
    const { store } = watched;
    await redis.command('CONFIG', 'SET', 'min-replicas-to-write', 1);
    await expect(store.lead('k', LONG_MS)).rejects.toThrow('NOREPLICAS');
    await watched.down();
    await redis.command('CONFIG', 'SET', 'min-replicas-to-write', 0);
    expect(await watched.up()).toBeLessThan(10_000);
    expect(await store.lead('k', LONG_MS)).toBe(true);
  });

  test('a call with an effect is made once, and only while somebody waits for it', async () => {
    const commands = connectCommands(redisOptions(single(redis.port)), scripts);
    await once(commands, 'ready');
    const park = (ticket: string): Promise<unknown> => commands.park(ticket, 'parked', '{}', LONG_MS, 0);
    await expect(park('no ticket')).rejects.toThrow('LATE');
    await commands.set('ticket', '');
    await park('ticket');
    await expect(park('ticket')).rejects.toThrow('LATE');
    expect(await commands.zcard('parked')).toBe(1);
    await ended(commands);
  });
});

describe('a Redis that is absent at the start', () => {
  let redis: RedisServer;
  let watched: WatchedStore;
  beforeEach(async () => {
    redis = await startRedis();
  });
  afterEach(async () => {
    await watched.store.close();
    await redis.close();
  });

  test('is used within 2 s after it starts', async () => {
    await redis.kill();
    watched = openWatched(single(redis.port));
    await expect(watched.store.load('k')).rejects.toThrow('ECONNREFUSED');
    expect(watched.states).toEqual([expect.stringContaining('ECONNREFUSED')]);

    await redis.restart();
    expect(await watched.up()).toBeLessThan(10_000);
    await until(() => watched.changes.includes('k'));
    await watched.store.replace('k', undefined, aged('1'), 60_000);
    expect((await watched.store.load('k'))?.challenge.nonce).toBe('1');
  });

  test('is not assumed while the first connection is being opened: calls wait for it', async () => {
    watched = openWatched(single(redis.port));
    expect(await watched.store.load('k')).toBeUndefined();
    expect(await watched.store.lead('k', 1_000)).toBe(true);
    expect(watched.states).toEqual(['up']);
    expect(watched.failures).toEqual([]);
  });
});

describe('an emptied Redis', () => {
  const isExclusive = async (gateway: RunningGateway): Promise<boolean> =>
    (await gateway.metric('digest_gateway_nonce_policy', { policy: 'exclusive' })) === 1;

  /** Two gateways on one Redis, of which one has learned that nonces serve one request at a time. */
  async function learnedOnOne(redis: RedisServer): Promise<{ replica: () => Promise<RunningGateway> }> {
    const scene = await startReplicas({
      behaviour: {
        qop: 'auth',
        oneTimeNonces: true,
        nextnonce: 'always',
        staleFlag: 'never',
      },
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

  /** A master with a replica that follows it: the first one that does changes the master's replication ID. */
  async function startReplicated(): Promise<{ master: RedisServer; replica: RedisServer }> {
    const master = await closedAtEnd(startRedis());
    const replica = await closedAtEnd(startRedis({ settings: [`replicaof 127.0.0.1 ${master.port}`] }));
    await until(async () => String(await replica.command('INFO', 'replication')).includes('link_status:up'));
    return { master, replica };
  }

  const parkedIn = async (server: RedisServer): Promise<number> =>
    ((await server.command('KEYS', '*:parked')) as string[]).length;

  async function open(redis: RedisServer): Promise<ChallengeStore> {
    const { store, up } = openWatched(single(redis.port));
    closing.push(() => store.close());
    await up();
    return store;
  }

  test.each([
    ['while connections stay', (redis: RedisServer) => redis.command('FLUSHALL')],
    ['by a restart', (redis: RedisServer) => redis.restart()],
  ] as const)('gets what was learned again, emptied %s', async (_title, empty) => {
    const redis = await closedAtEnd(startRedis());
    const { replica } = await learnedOnOne(redis);
    const holds = async (): Promise<boolean> =>
      ((await redis.command('KEYS', '*:learned')) as string[]).length > 0;
    await until(holds);
    await empty(redis);
    await until(holds);
    const late = await replica();
    await until(() => seesRedis(late));
    await until(() => isExclusive(late));
  });

  test('that brings a removed nonce back gives it no second owner', async () => {
    const { master, replica } = await startReplicated();
    const store = await open(master);
    await store.park('k', parked('n', 3), LONG_MS);
    await until(async () => (await parkedIn(replica)) === 1);
    await replica.command('REPLICAOF', 'NO', 'ONE');
    expect((await store.take('k'))?.challenge.nonce).toBe('n');
    const promoted = await open(replica);
    expect(await promoted.take('k')).toBeUndefined();
    await promoted.park('k', parked('m', 1), LONG_MS);
    expect((await promoted.take('k'))?.challenge.nonce).toBe('m');
  });

  test('that becomes the master again gives no nonce a second owner', async () => {
    const { master, replica } = await startReplicated();
    const store = await open(master);
    await store.park('k', parked('n', 3), LONG_MS);
    await until(async () => (await parkedIn(replica)) === 1);
    await replica.command('REPLICAOF', 'NO', 'ONE');
    expect((await store.take('k'))?.challenge.nonce).toBe('n');
    await master.command('REPLICAOF', '127.0.0.1', replica.port);
    await until(async () => (await parkedIn(master)) === 1);
    await master.command('REPLICAOF', 'NO', 'ONE');
    const again = await open(master);
    expect(await again.take('k')).toBeUndefined();
    await again.park('k', parked('m', 1), LONG_MS);
    expect((await again.take('k'))?.challenge.nonce).toBe('m');
  });
});
