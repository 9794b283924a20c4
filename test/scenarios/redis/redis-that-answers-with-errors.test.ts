import { once } from 'node:events';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { Redis } from 'ioredis';
import { scripts } from '../../../src/challenges/store/redis-scripts.ts';
import { connectCommands, ended } from '../../../src/redis/connection.ts';
import { aged, learned, parked } from '../../support/challenges.ts';
import { type RedisServer, startRedis } from '../../support/redis.ts';
import { openWatched, redisOptions, single, type WatchedStore } from '../../support/redis-store.ts';

const LONG_MS = 60_000;

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
  expect((await store.load('k'))?.challenge.nonce).toBe('1');
  await watched.down();
  expect(watched.states.at(-1)).toContain(error);
  expect(watched.failures.map(({ operation }) => operation)).toEqual(['replace', 'park', 'lead']);
}

test('a replica takes no writes, until it is a master again', async () => {
  await watched.store.replace('k', undefined, aged('1'), LONG_MS);
  // With a master that is not there, the replica keeps what it has.
  await redis.command('REPLICAOF', '127.0.0.1', 1);
  await expectWritesRefused('READONLY');
  await redis.command('REPLICAOF', 'NO', 'ONE');
  expect(await watched.up()).toBeLessThan(10_000);
  expect((await watched.store.replace('k', '1', aged('2'), LONG_MS)).challenge.nonce).toBe('2');
});

test('a full memory takes no writes, until there is room', async () => {
  await watched.store.replace('k', undefined, aged('1'), LONG_MS);
  await redis.command('CONFIG', 'SET', 'maxmemory-policy', 'noeviction', 'maxmemory', '1');
  await expectWritesRefused('OOM');
  await redis.command('CONFIG', 'SET', 'maxmemory', '0');
  expect(await watched.up()).toBeLessThan(10_000);
  expect((await watched.store.replace('k', '1', aged('2'), LONG_MS)).challenge.nonce).toBe('2');
});

test('one that reads its data is not there until it is done', async () => {
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

test('what cannot be read is as good as absent, and is replaced', async () => {
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

test('whatever else Redis refuses is a rejection, and no more', async () => {
  const { store } = watched;
  await redis.command('CONFIG', 'SET', 'min-replicas-to-write', 1);
  await expect(store.lead('k', LONG_MS)).rejects.toThrow('NOREPLICAS');
  await watched.down();
  await redis.command('CONFIG', 'SET', 'min-replicas-to-write', 0);
  expect(await watched.up()).toBeLessThan(10_000);
  expect(await store.lead('k', LONG_MS)).toBe(true);
});

test('what changes something happens once, and only while somebody waits for it', async () => {
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
