import { createServer } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { afterEach, expect, jest, test } from '@jest/globals';
import { Secret } from '../../src/base/secret.ts';
import { Throttle } from '../../src/base/throttle.ts';
import type { RedisServers } from '../../src/redis/connection.ts';
import { closedAtEnd } from '../support/closing.ts';
import { listenOnLoopback } from '../support/loopback-server.ts';
import { startRedis } from '../support/redis.ts';
import { openWatched, redisOptions, single, type WatchedStore } from '../support/redis-store.ts';
import { startReplicas } from '../support/replicas.ts';
import { until } from '../support/until.ts';

/** More than the time between two heartbeats, in milliseconds. */
const BEAT_MS = 1_500;

let watched: WatchedStore | undefined;
afterEach(async () => {
  jest.restoreAllMocks();
  await watched?.store.close();
});

/** Opens a store that passes on a reason without a pause after the last one. */
function open(servers: RedisServers): WatchedStore {
  jest.spyOn(Throttle.prototype, 'suppresses').mockReturnValue(false);
  const opened = openWatched(servers, { password: new Secret('secret') });
  watched = opened;
  return opened;
}

test('a reason is passed on once in an outage, also if another one came between, and few in all', async () => {
  let reply = 'a';
  const server = createServer((socket) => {
    socket.on('error', () => undefined).once('data', () => socket.end(`-WRONGPASS ${reply}\r\n`));
  });
  const { port } = await closedAtEnd(listenOnLoopback(server));
  const { states } = open(single(port));
  const said = async (name: string, count: number): Promise<void> => {
    reply = name;
    await until(() => states.length === count);
  };
  await said('a', 1);
  await said('b', 2);
  for (const name of ['a', 'b at 10.0.0.1', 'b at 10.0.0.2']) {
    reply = name;
    await delay(BEAT_MS);
  }
  expect(states).toEqual(['WRONGPASS a', 'WRONGPASS b', 'WRONGPASS b at 10.0.0.1']);
  for (const [at, name] of ['c', 'd', 'e', 'f', 'g'].entries()) await said(name, 4 + at);
  reply = 'h';
  await delay(BEAT_MS);
  expect(states).toHaveLength(8);
});

test('the reason of Sentinel does not say when it tries again, which changes', async () => {
  const { port, close } = await listenOnLoopback(createServer());
  await close();
  const { states } = open({ kind: 'sentinel', sentinels: [{ host: '127.0.0.1', port }], name: 'm' });
  await until(() => states.length > 0);
  await delay(2 * BEAT_MS);
  expect(states).toEqual([expect.stringMatching(/^All sentinels are unreachable\. Last error: /)]);
});

test('a Redis that comes back with another password is told by that reason, in the log and in the state', async () => {
  const redis = await closedAtEnd(startRedis({ settings: ['requirepass one'] }));
  const { replica } = await startReplicas();
  const gateway = await replica({ ...redisOptions(single(redis.port)), password: new Secret('one') });
  const lines = () => gateway.logged.filter(({ msg }) => String(msg).startsWith('Redis '));
  await until(() => lines().length === 1);
  await redis.kill();
  await until(() => lines().length === 2);
  await redis.restart({ settings: ['requirepass two'] });
  await until(() => lines().length === 3);
  const { level, msg, reason } = lines()[2] ?? {};
  expect([level, msg, reason]).toEqual(['warn', lines()[1]?.['msg'], expect.stringContaining('WRONGPASS')]);
  expect(await gateway.plane.state()).toMatchObject({ storeUp: false, storeFailing: [reason] });
});
