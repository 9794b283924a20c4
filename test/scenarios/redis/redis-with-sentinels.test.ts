import { inspect } from 'node:util';
import { afterEach, describe, expect, test } from '@jest/globals';
import { Secret } from '../../../src/base/secret.ts';
import type { RedisStoreOptions } from '../../../src/challenges/store/redis.ts';
import { createCertificates } from '../../../src/simulator/certificates.ts';
import { aged } from '../../support/challenges.ts';
import { type RedisSentinel, startRedisSentinel } from '../../support/redis-sentinel.ts';
import { openWatched, type WatchedStore } from '../../support/redis-store.ts';
import { until } from '../../support/until.ts';

const LONG_MS = 60_000;

const certificates = createCertificates();

let redis: RedisSentinel;
const stores: WatchedStore[] = [];
afterEach(async () => {
  await Promise.all(stores.splice(0).map(({ store }) => store.close()));
  await redis.close();
});

/** Two processes that look for the master. */
function openBoth(more: Partial<RedisStoreOptions> = {}): [WatchedStore, WatchedStore] {
  const { servers, replica } = redis;
  // The first is none, and does not know the answer; the library prints a warning when it sends one a password.
  const wrong = more.sentinelPassword === undefined ? [{ host: '127.0.0.1', port: replica.port }] : [];
  const open = () => openWatched({ ...servers, sentinels: [...wrong, ...servers.sentinels] }, more);
  const both: [WatchedStore, WatchedStore] = [open(), open()];
  stores.push(...both);
  return both;
}

async function expectToShare([watched, other]: [WatchedStore, WatchedStore]): Promise<void> {
  await Promise.all([watched.up(), other.up()]);
  await watched.store.replace('k', undefined, aged('1'), LONG_MS);
  expect((await other.store.load('k'))?.challenge.nonce).toBe('1');
  expect([...watched.failures, ...other.failures]).toEqual([]);
}

test('with TLS, of the Sentinels too', async () => {
  const { ca, server } = await certificates;
  redis = await startRedisSentinel({ tls: { certificate: server.good, ca } });
  await expectToShare(openBoth({ tls: { ca } }));
  const [stranger] = openBoth({ tls: { ca: undefined } });
  await stranger.down();
  expect(stranger.states.at(-1)).toMatch(/sentinels are unreachable/);
});

test('a replica that becomes the master goes on with what was shared', async () => {
  redis = await startRedisSentinel();
  const [watched, other] = openBoth();
  await Promise.all([watched.up(), other.up()]);
  await watched.store.replace('k', undefined, aged('1', 1_000), LONG_MS);
  await until(async () => Number(await redis.replica.command('DBSIZE')) > 1);
  await redis.master.kill();
  await expect(watched.store.load('k')).rejects.toThrow();
  await watched.down();

  // The Sentinel ends every connection of the replica that it promotes.
  await redis.promoted();
  expect(await watched.up()).toBeLessThan(10_000);
  await other.up();
  const held = await other.store.load('k');
  expect(held?.challenge.nonce).toBe('1');
  expect(held?.ageMs).toBeGreaterThan(1_000);

  other.changes.splice(0);
  await watched.store.replace('k', '1', aged('2'), LONG_MS);
  await until(() => other.changes.includes('k'));
  expect((await other.store.load('k'))?.challenge.nonce).toBe('2');
});

describe('who ask for a password', () => {
  const settings = ['requirepass hunter2', 'user gateway on >hunter3 ~* &* +@all'];

  test.each([
    ['of everybody', { sentinelPassword: new Secret('hunter2') }],
    ['of a user', { sentinelUsername: 'gateway', sentinelPassword: new Secret('hunter3') }],
  ])('%s get it, and Redis gets its own or none', async (_whose, guard) => {
    redis = await startRedisSentinel({ settings });
    await expectToShare(openBoth(guard));
  });

  test.each([
    ['missing', {}, /NOAUTH/],
    ['wrong', { sentinelPassword: new Secret('hunter2 and more') }, /WRONGPASS/],
  ])('that is %s: it is told, without the password', async (_how, guard, reason) => {
    redis = await startRedisSentinel({ settings });
    const [watched] = openBoth(guard);
    await watched.down();
    expect(watched.states.at(-1)).toMatch(reason);
    expect(inspect(watched, { depth: 10, showHidden: true })).not.toContain('hunter2');
  });
});
