import { setImmediate } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { aged, learned, parked } from '../../support/challenges.ts';
import { inTime } from '../../support/in-time.ts';
import { type RedisServer, startRedis } from '../../support/redis.ts';
import { openWatched, single, type WatchedStore } from '../../support/redis-store.ts';
import { until } from '../../support/until.ts';

/** How soon state is shared again, in milliseconds; a quiet machine takes a fifth of it. */
const BACK_LIMIT_MS = 10_000;
const LONG_MS = 60_000;

let redis: RedisServer;
let watched: WatchedStore;
let other: WatchedStore;
beforeEach(async () => {
  redis = await startRedis();
  [watched, other] = [
    openWatched(single(redis.port), { timeoutMs: 100 }),
    openWatched(single(redis.port), { timeoutMs: 100 }),
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
  await watched.store.replace('shared', undefined, aged('1'), LONG_MS);
  expect((await other.store.load('shared'))?.challenge.nonce).toBe('1');
  await until(() => other.changes.includes('shared'));
}

describe('killed', () => {
  test('no call waits; restarted empty, it is shared again and everybody looks again', async () => {
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

  test('under use, every call ends', async () => {
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

describe('hung', () => {
  test('every call is given up in time; when it goes on, it does not catch up on them', async () => {
    await redis.hang();
    await expectAllToFailInTime(watched);
    await expectAllToFailInTime(watched);
    expect(watched.states).toEqual(['up', 'Redis did not answer within 100 ms']);

    await redis.goOn();
    expect(await watched.up()).toBeLessThan(BACK_LIMIT_MS);
    await other.up();
    await expectNoLateSurprise();
    await expectToShare();
  });

  test('for longer than a connection is kept: it comes back all the same', async () => {
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

describe('slow', () => {
  test('every call is given up in time; once it is quick again, it does not catch up on them', async () => {
    await redis.command('CLIENT', 'PAUSE', 700, 'ALL');
    await expectAllToFailInTime(watched);
    await watched.down();
    expect(await watched.up()).toBeLessThan(700 + BACK_LIMIT_MS);
    await other.up();
    await expectNoLateSurprise();
    await expectToShare();
  });
});

test('a call that failed alone is made up for, although Redis is there all the time', async () => {
  const patient = openWatched(single(redis.port), { timeoutMs: 400 });
  try {
    await patient.up();
    await patient.store.load('k');
    // Longer than a call may take, and over before the heartbeat that follows gives up.
    await redis.command('CLIENT', 'PAUSE', 450, 'ALL');
    await expect(patient.store.learn('k', learned)).rejects.toThrow('within 400 ms');
    await until(() => patient.changes.includes('k'));
  } finally {
    await patient.store.close();
  }
});

test('a nonce is not younger for what Redis did late', async () => {
  await watched.store.replace('k', undefined, aged('1'), LONG_MS);
  await redis.hang();
  await expect(watched.store.replace('k', '1', aged('2'), LONG_MS)).rejects.toThrow('within 100 ms');
  await redis.goOn();
  await other.up();
  await until(() => other.store.load('k').then(Boolean, () => false));
  expect((await other.store.load('k'))?.challenge.nonce).toBe('1');
});

test('a subscription that breaks alone is noticed, and what may have been missed is looked at', async () => {
  await other.store.load('k');
  other.changes.splice(0);
  await redis.command('CLIENT', 'KILL', 'TYPE', 'pubsub');
  await until(() => other.changes.includes('k'), BACK_LIMIT_MS);
  expect(other.failures).toEqual([]);
  await expectToShare();
});

test('a closed store leaves no connection', async () => {
  const clients = async (): Promise<number> =>
    String(await redis.command('CLIENT', 'LIST')).match(/name=digest-gateway/g)?.length ?? 0;
  expect(await clients()).toBe(4);
  await watched.store.close();
  await until(async () => (await clients()) === 2);
  await expect(watched.store.load('k')).rejects.toThrow();
});
