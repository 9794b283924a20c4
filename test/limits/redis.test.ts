import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import { openRedisLimits } from '../../src/limits/redis.ts';
import type { LimitStore, Report } from '../../src/limits/store.ts';
import { end, limit, limitsOf, today, unused } from '../support/limited.ts';
import { type RedisServer, startRedis } from '../support/redis.ts';
import { redisOptions, single } from '../support/redis-store.ts';

let redis: RedisServer;
beforeAll(async () => {
  redis = await startRedis();
});
afterAll(() => redis.close());
const closing: (() => Promise<void>)[] = [];
const rejections: number[] = [];
afterEach(async () => {
  for (const close of closing.splice(0)) await close();
  rejections.length = 0;
  await redis.command('FLUSHALL');
});

/** A process of its own, as far as Redis can tell. */
function openStore(): LimitStore {
  const store = openRedisLimits(redisOptions(single(redis.port)), () => rejections.push(1));
  closing.push(() => store.close());
  return store;
}

function report(change: Partial<Report> = {}): Report {
  return { ...unused(), ...change };
}

test('all processes settle with one bucket, one day and one count of requests under way', async () => {
  const [one, other] = [openStore(), openStore()];
  await one.settle('client:a', report());
  await other.settle('client:a', report());
  await one.settle('client:a', report({ total: 30, wanted: 30, inFlight: 7 }));
  const state = await other.settle('client:a', report({ total: 10, wanted: 10, inFlight: 2 }));
  expect(state).toMatchObject({ used: 40, othersInFlight: 7, members: 2 });
  expect(state.tokens).toBeCloseTo(60, 1);
  expect(state.share).toBeCloseTo(11 / 42, 1);
  expect(await one.settle('client:b', report())).toMatchObject({
    used: 0,
    members: 1,
    share: 1,
    tokens: 100,
  });
});

test('a report that comes twice is charged once', async () => {
  const store = openStore();
  await store.settle('client:a', report({ total: 5 }));
  await store.settle('client:a', report({ total: 5 }));
  const state = await store.settle('client:a', report({ total: 7 }));
  expect([state.used, Math.round(state.tokens)]).toEqual([7, 93]);
});

test('a process that leaves, or says nothing for its lifetime, no longer counts', async () => {
  const [one, other, third] = [openStore(), openStore(), openStore()];
  await one.settle('client:a', report({ inFlight: 3 }));
  await other.settle('client:a', report({ inFlight: 4, lifetimeMs: 1 }));
  await one.settle('client:a', report({ lifetimeMs: 0 }));
  await redis.command('DEBUG', 'SLEEP', 0.005);
  expect(await third.settle('client:a', report())).toMatchObject({ members: 1, othersInFlight: 0 });
});

test('a Redis that lost everything is told what is known, and not what was yesterday', async () => {
  const store = openStore();
  const known = { total: 20, settled: 20, tokens: 3, used: 20 };
  const { tokens, used } = await store.settle('client:a', report(known));
  expect([Math.round(tokens), used]).toEqual([3, 20]);
  const yesterday = await store.settle('client:b', report({ ...known, day: today() - 1 }));
  expect(yesterday.used).toBe(0);
});

test('what is no hash makes way, and what is stored ends by itself', async () => {
  await redis.command('SET', 'test:v1:limits:client:a', 'x');
  const store = openStore();
  expect(await store.settle('client:a', report({ total: 1 }))).toMatchObject({ used: 1 });
  const ms = Number(await redis.command('PTTL', 'test:v1:limits:client:a'));
  expect(ms).toBeGreaterThan(86_400_000);
});

describe('what a stranger writes', () => {
  const key = 'test:v1:limits:client:a';
  const set = (...fields: (string | number)[]) => redis.command('HSET', key, ...fields);
  const stranger = '@00000000-0000-4000-8000-000000000000';

  test.each([
    ['no number of tokens', ['tokens', 'nan', 'at', '1']],
    ['no number at all', ['tokens', 'many', 'at', 'now', 'day', 'today', 'used', '']],
    ['more than there is', ['tokens', '1e308', 'used', 'inf', 'day', String(today())]],
    ['a negative count of requests', ['used', '-1e15', 'day', String(today())]],
    ['a process in no form', [stranger, 'x']],
    ['a process that never ends', [stranger, '9e14 0 0 0 0']],
    ['a process with infinite requests', [stranger, 'inf inf inf inf inf']],
    ['a process that is no number', [stranger, 'nan nan nan nan nan']],
    ['a process with negative requests', [stranger, `${Date.now() + 1_000} 0 -1 -1e9 0`]],
  ])('as %s does not count', async (_, fields) => {
    await set(...fields);
    const store = openStore();
    const state = await store.settle('client:a', report({ total: 5 }));
    expect(state).toMatchObject({ used: 5, members: 1, othersInFlight: 0, share: 1 });
    expect(state.tokens).toBeCloseTo(95, 0);
    const again = await store.settle('client:a', report({ total: 6 }));
    expect([again.used, Math.round(again.tokens)]).toEqual([6, 94]);
  });

  test('as a debt without end is paid after a burst', async () => {
    await set('tokens', '-1e14', 'at', Date.now());
    const { tokens } = await openStore().settle('client:a', report());
    expect(tokens).toBe(-100);
  });

  test('as a crowd of processes makes way, and is told', async () => {
    const crowd = Array.from({ length: 3_000 }, (_, index) => [`@${index}`, '9e12 0 0 0 0']).flat();
    await set(...crowd);
    const store = openStore();
    expect(await store.settle('client:a', report())).toMatchObject({ members: 1, share: 1 });
    expect(await redis.command('HLEN', key)).toBeLessThan(10);
    expect(rejections).toEqual([1]);
    await store.settle('client:a', report());
    expect(rejections).toEqual([1]);
  });

  test('as a full bucket at every report lets one process admit no more than its limit', async () => {
    const scene = limitsOf({ a: limit({ rate: { perSecond: 0.001, burst: 20 }, daily: 25 }) }, {}, openStore);
    closing.unshift(() => scene.limits.close());
    let passed = 0;
    for (let round = 1; round <= 10; round += 1) {
      await redis.command('DEL', key);
      await set('tokens', '20', 'at', Date.now(), 'used', '0', 'day', today());
      await scene.limits.restore();
      passed += scene.passing(20);
    }
    expect(passed).toBe(20);
  });
});

/** Two processes with the same limits, which have heard of each other. */
async function twoProcesses(settings: Parameters<typeof limit>[0]) {
  const scenes = [0, 1].map(() => limitsOf({ a: limit(settings) }, {}, openStore));
  closing.unshift(
    ...scenes.map(
      ({ limits }) =>
        () =>
          limits.close(),
    ),
  );
  for (const _round of [1, 2]) for (const { limits } of scenes) await limits.restore();
  const [one, other] = scenes;
  if (one === undefined || other === undefined) throw new Error('no scene');
  return { one, other };
}

test('a burst is divided, and the part that the others do not use can be had', async () => {
  const { one, other } = await twoProcesses({ rate: { perSecond: 0.001, burst: 40 } });
  expect(one.passing(40)).toBe(20);
  let passed = 20;
  for (let round = 1; round <= 20; round += 1) {
    await one.limits.restore();
    passed += one.passing(40);
  }
  await other.limits.restore();
  passed += other.passing(40);
  expect(passed).toBe(40);
});

test('places are shared, and those of one process are free for the other once they are', async () => {
  const { one, other } = await twoProcesses({ concurrent: 4 });
  const held = [one.ask(), one.ask()];
  await one.limits.restore();
  await other.limits.restore();
  const others = [other.ask(), other.ask(), other.ask()];
  expect(others.map((answer) => answer instanceof Error)).toEqual([false, true, true]);
  for (const answer of [...held, ...others]) end(answer);
  await one.limits.restore();
  await other.limits.restore();
  expect(other.passing(4)).toBe(4);
});

test('the last request of a day passes wherever it comes', async () => {
  const { one, other } = await twoProcesses({ daily: 3 });
  const passed: number[] = [];
  for (const scene of [one, other, other, one]) {
    passed.push(scene.passing(1));
    await scene.limits.restore();
    await (scene === one ? other : one).limits.restore();
  }
  expect(passed).toEqual([1, 1, 1, 0]);
});
