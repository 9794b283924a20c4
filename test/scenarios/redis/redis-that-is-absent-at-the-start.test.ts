import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { aged } from '../../support/challenges.ts';
import { type RedisServer, startRedis } from '../../support/redis.ts';
import { openWatched, single, type WatchedStore } from '../../support/redis-store.ts';
import { until } from '../../support/until.ts';

let redis: RedisServer;
let watched: WatchedStore;
beforeEach(async () => {
  redis = await startRedis();
});
afterEach(async () => {
  await watched.store.close();
  await redis.close();
});

test('the store opens without it, says why, and uses it within 2 s of its start', async () => {
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

test('where it is there, the first calls wait for the connection', async () => {
  watched = openWatched(single(redis.port));
  expect(await watched.store.load('k')).toBeUndefined();
  expect(await watched.store.lead('k', 1_000)).toBe(true);
  expect(watched.states).toEqual(['up']);
  expect(watched.failures).toEqual([]);
});
