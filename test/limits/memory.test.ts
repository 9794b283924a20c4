import { afterAll, beforeAll, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { MemoryLimitStore } from '../../src/limits/channel.ts';
import { RedisLimitStore } from '../../src/limits/redis.ts';
import type { LimitState, LimitStore, Report } from '../../src/limits/store.ts';
import { clocksAt, realClocks, unused } from '../support/limited.ts';
import { type RedisServer, startRedis } from '../support/redis.ts';
import { redisOptions, single } from '../support/redis-store.ts';
import { until } from '../support/until.ts';

let redis: RedisServer;
const stores: LimitStore[] = [];
beforeAll(async () => {
  redis = await startRedis();
  for (let at = 0; at < PROCESSES; at += 1) {
    stores.push(new RedisLimitStore(redisOptions(single(redis.port)), () => undefined));
  }
});
afterAll(async () => {
  await Promise.all(stores.map((store) => store.close()));
  await redis.close();
});

const PROCESSES = 3;
/** Milliseconds in which the parts change by less than what is compared. */
const SOON_MS = 100;
const count = fc.integer({ min: 0, max: 300 });
/** So little comes in a second that the time of a call does not matter. */
const report = fc.record({
  total: count,
  settled: count,
  forgiven: count,
  wanted: count,
  inFlight: count,
  lifetimeMs: fc.constantFrom(0, 120_000),
  perSecond: fc.constantFrom(0, 0.001),
  burst: fc.constantFrom(20, 100),
  tokens: fc.integer({ min: -100, max: 100 }),
  used: count,
  day: fc.constantFrom(unused().day, unused().day - 1, unused().day + 1),
  ofDay: count,
});
const history = fc.array(fc.tuple(fc.nat({ max: PROCESSES - 1 }), report), { minLength: 1, maxLength: 12 });

test('memory and Redis reply the same to any reports', async () => {
  let run = 0;
  await fc.assert(
    fc.asyncProperty(history, async (reports) => {
      // Redis can be late on a busy machine: nobody knows then when, or whether, it counted the report.
      await until(async () => {
        run += 1;
        return comparedReplies(reports, `run ${run}`);
      });
    }),
    { numRuns: 100 },
  );
});

/** Compares the replies of both stores; false: one of Redis did not come soon. */
async function comparedReplies(
  reports: readonly (readonly [number, Report])[],
  name: string,
): Promise<boolean> {
  const memory = new MemoryLimitStore(realClocks);
  const joined = stores.map(() => memory.join());
  for (const [process, said] of reports) {
    const begun = performance.now();
    const [one, other] = await Promise.all([
      joined[process]?.settle('x', said),
      stores[process]?.settle(name, said).catch(() => undefined),
    ]);
    if (one === undefined || other === undefined || performance.now() - begun > SOON_MS) return false;
    expect(rounded(one)).toEqual(rounded(other));
    // The parts change with time.
    expect(Math.abs(one.share - other.share)).toBeLessThan(0.1);
  }
  return true;
}

function rounded(state: LimitState) {
  const { share, tokens, ...counts } = state;
  return { ...counts, tokens: Math.round(tokens * 10) / 10 + 0 };
}

test('a process that is silent is forgotten after its lifetime, and its demand before', async () => {
  const clocks = clocksAt();
  const one = new MemoryLimitStore(clocks);
  const other = one.join();
  const day = Math.floor(clocks.epoch() / 86_400_000);
  await one.settle('x', { ...unused(), day, wanted: 99, total: 99, inFlight: 5, lifetimeMs: 10_000 });
  expect((await other.settle('x', { ...unused(), day })).share).toBe(0.25);
  clocks.pass(10_000);
  const later = await other.settle('x', { ...unused(), day });
  expect(later).toMatchObject({ members: 2, othersInFlight: 5 });
  expect(later.share).toBeCloseTo(0.5, 2);
  clocks.pass(1);
  expect(await other.settle('x', { ...unused(), day })).toMatchObject({
    members: 1,
    othersInFlight: 0,
    share: 1,
  });
  clocks.pass(12 * 60 * 60_000);
  expect(await other.settle('x', { ...unused(), day: day + 1 })).toMatchObject({ used: 0, tokens: 100 });
});

test('the number of limits is bounded: the one that was reported longest ago makes way', async () => {
  const store = new MemoryLimitStore(clocksAt());
  const said: Report = { ...unused(), total: 1 };
  for (let at = 0; at < 65_536; at += 1) await store.settle(`${at}`, said);
  await store.settle('0', said);
  await store.settle('one more', said);
  const tokens = async (name: string) => (await store.settle(name, { ...said, tokens: 50 })).tokens;
  expect([await tokens('0'), await tokens('1')]).toEqual([99, 49]);
});
