import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import { RedisLimitStore } from '../../src/limits/redis.ts';
import type { LimitStore, Report } from '../../src/limits/store.ts';
import { closing } from '../support/closing.ts';
import { limit, limitsOf, today, unused } from '../support/limited.ts';
import { type RedisServer, startRedis } from '../support/redis.ts';
import { redisOptions, single } from '../support/redis-store.ts';

let redis: RedisServer;
beforeAll(async () => {
  redis = await startRedis();
});
afterAll(() => redis.close());
const rejections: number[] = [];
afterEach(async () => {
  rejections.length = 0;
  await redis.command('FLUSHALL');
});

/** A process of its own, as far as Redis can tell. */
function openStore(): LimitStore {
  const store = new RedisLimitStore(redisOptions(single(redis.port)), () => rejections.push(1));
  closing.push(() => store.close());
  return store;
}

function report(change: Partial<Report> = {}): Report {
  return { ...unused(), ...change };
}

test('what is no hash makes way, and what is stored ends by itself', async () => {
  await redis.command('SET', 'test:v1:limits:client:a', 'x');
  const store = openStore();
  expect(await store.settle('client:a', report({ total: 1 }))).toMatchObject({ used: 1 });
  const ms = Number(await redis.command('PTTL', 'test:v1:limits:client:a'));
  expect(ms).toBeGreaterThan(86_400_000);
});

test('processes count where the clock of Redis went back', async () => {
  const others = [openStore(), openStore()];
  for (const other of others) await other.settle('client:a', report({ inFlight: 5 }));
  const key = 'test:v1:limits:client:a';
  const lines = (await redis.command('HGETALL', key)) as string[];
  for (let at = 0; at < lines.length; at += 2) {
    const [name = '', line = ''] = [lines[at], lines[at + 1]];
    if (!name.startsWith('@')) continue;
    const [ends, seen, ...rest] = line.split(' ');
    const ahead = [Number(ends) + 5_000, Number(seen) + 5_000, ...rest].join(' ');
    await redis.command('HSET', key, name, ahead);
  }
  const state = await openStore().settle('client:a', report({ wanted: 1 }));
  expect(state).toMatchObject({ members: 3, othersInFlight: 10 });
  expect(state.share).toBeLessThan(1);
  expect(rejections).toEqual([]);
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
    closing.push(() => scene.limits.close());
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
