import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { aged } from '../../support/challenges.ts';
import { type RedisServer, startRedis } from '../../support/redis.ts';
import { openWatched, type WatchedStore } from '../../support/redis-store.ts';
import { until } from '../../support/until.ts';

const LONG_MS = 60_000;

let master: RedisServer;
let replica: RedisServer;
let sentinel: RedisServer;
let servers: RedisServer[];
let watched: WatchedStore;
let other: WatchedStore;
afterEach(async () => {
  await Promise.all([watched.store.close(), other.store.close()]);
  await Promise.all(servers.map((server) => server.close()));
});

beforeEach(async () => {
  master = await startRedis();
  replica = await startRedis({ settings: [`replicaof 127.0.0.1 ${master.port}`] });
  await until(async () => String(await replica.command('INFO', 'replication')).includes('link_status:up'));
  sentinel = await startRedis({
    sentinel: true,
    settings: [
      `sentinel monitor mymaster 127.0.0.1 ${master.port} 1`,
      'sentinel down-after-milliseconds mymaster 200',
      'sentinel failover-timeout mymaster 1000',
    ],
  });
  servers = [master, replica, sentinel];
  await until(async () => String(await sentinel.command('SENTINEL', 'replicas', 'mymaster')) !== '');
  const open = (): WatchedStore =>
    openWatched({
      kind: 'sentinel',
      // The first is none, and does not know the answer.
      sentinels: [replica, sentinel].map(({ port }) => ({ host: '127.0.0.1', port })),
      name: 'mymaster',
    });
  [watched, other] = [open(), open()];
  await Promise.all([watched.up(), other.up()]);
});

test('a replica that becomes the master goes on with what was shared', async () => {
  await watched.store.replace('k', undefined, aged('1', 1_000), LONG_MS);
  await until(async () => Number(await replica.command('DBSIZE')) > 1);
  await master.kill();
  await expect(watched.store.load('k')).rejects.toThrow();
  await watched.down();

  // The Sentinel ends every connection of the replica that it promotes.
  const promoted = async (): Promise<boolean> =>
    String(await replica.command('INFO', 'replication').catch(() => '')).includes('role:master');
  await until(promoted, 15_000);
  expect(await watched.up()).toBeLessThan(2_000);
  await other.up();
  const held = await other.store.load('k');
  expect(held?.challenge.nonce).toBe('1');
  expect(held?.ageMs).toBeGreaterThan(1_000);

  other.changes.splice(0);
  await watched.store.replace('k', '1', aged('2'), LONG_MS);
  await until(() => other.changes.includes('k'));
  expect((await other.store.load('k'))?.challenge.nonce).toBe('2');
}, 20_000);
