import { setImmediate } from 'node:timers/promises';
import { afterEach, expect, test } from '@jest/globals';
import { MemoryLimitStore } from '../../src/limits/channel.ts';
import { LimitSync } from '../../src/limits/limit-sync.ts';
import { LocalLimit } from '../../src/limits/local-limit.ts';
import type { LimitState, LimitStore, Report } from '../../src/limits/store.ts';
import { clocksAt, type LimitedScene, limit, limitsOf } from '../support/limited.ts';
import { until } from '../support/until.ts';

const DAY_MS = 86_400_000;
const TODAY = Math.floor(clocksAt().epoch() / DAY_MS);

const open: (LimitedScene & { readonly store: ReturnType<typeof heldStore> })[] = [];
afterEach(async () => {
  for (const { limits, store } of open.splice(0)) {
    store.end();
    await limits.close();
  }
});

/** A store that answers when and what the test says. */
function heldStore(): LimitStore & {
  readonly reports: Report[];
  answer(state: Partial<LimitState>): void;
  fail(): void;
  /** Nothing is answered from here on. */
  end(): void;
} {
  const reports: Report[] = [];
  let waiting = Promise.withResolvers<LimitState>();
  let ended = false;
  const next = (): typeof waiting => {
    const before = waiting;
    waiting = Promise.withResolvers();
    return before;
  };
  return {
    reports,
    settle(_name, report) {
      reports.push(report);
      return ended ? Promise.reject(new Error('gone')) : waiting.promise;
    },
    answer: (state) =>
      next().resolve({ tokens: 0, used: 0, day: TODAY, othersInFlight: 0, members: 1, share: 1, ...state }),
    fail: () => next().reject(new Error('gone')),
    end: () => {
      ended = true;
      waiting.promise.catch(() => undefined);
      waiting.reject(new Error('gone'));
    },
    close: async () => undefined,
  };
}

function setScene(settings: Parameters<typeof limit>[0]) {
  const store = heldStore();
  const scene = limitsOf({ a: limit(settings) }, {}, () => store);
  const whole = { ...scene, store };
  open.push(whole);
  return whole;
}

test('no request waits for the store, and one call is under way at a time', async () => {
  const { passing, store } = setScene({ rate: { perSecond: 1, burst: 10 } });
  expect(passing(20)).toBe(10);
  expect(passing(20)).toBe(0);
  expect(store.reports).toMatchObject([{ total: 1, settled: 0 }]);
  store.answer({ tokens: 9 });
  await until(() => store.reports.length === 2);
  expect(store.reports[1]).toMatchObject({ total: 10, settled: 1, wanted: 39, forgiven: 0 });
  store.answer({ tokens: 0 });
});

test('what was given away meanwhile is not given away twice', async () => {
  const { passing, limits, store } = setScene({ rate: { perSecond: 0.001, burst: 10 }, daily: 20 });
  const restored = limits.restore();
  expect(passing(4)).toBe(4);
  store.answer({ tokens: 8, used: 10, members: 2, share: 0.5 });
  await restored;
  expect(passing(9)).toBe(0);
});

test('a debt is paid before anything passes', async () => {
  const { passing, ask, clocks, limits, store } = setScene({ rate: { perSecond: 1, burst: 10 } });
  const restored = limits.restore();
  store.answer({ tokens: -2, members: 2, share: 0.5 });
  await restored;
  expect(ask()).toMatchObject({ retryAfter: 3 });
  clocks.pass(2_900);
  expect(passing(1)).toBe(0);
});

test('without an answer an equal part goes on, and afterwards no more is reported than is missing', async () => {
  const { passing, clocks, limits, metrics, store } = setScene({
    rate: { perSecond: 8, burst: 40 },
    daily: 1_000,
    concurrent: 8,
  });
  const restored = limits.restore();
  store.answer({ tokens: 40, members: 4, share: 0.9 });
  await restored;
  const failing = limits.restore();
  store.fail();
  await failing;
  const { values } = await metrics.storeErrors.get();
  expect(values).toMatchObject([{ labels: { operation: 'limits' }, value: 1 }]);

  // The part of one in four: a burst of 10, and 2 a second.
  expect(passing(40)).toBe(10);
  clocks.pass(60_000);
  expect(passing(40)).toBe(10);
  expect(store.reports).toHaveLength(2);
  clocks.pass(2_000);
  const trying = limits.restore();
  expect(store.reports[2]).toMatchObject({ total: 20, settled: 0, forgiven: 14 });
  store.answer({ tokens: 36, used: 20, members: 4, share: 0.25 });
  await trying;
  expect(passing(40)).toBe(9);
});

test('one that never heard of others has everything', async () => {
  const { passing, limits, store } = setScene({ rate: { perSecond: 1, burst: 10 } });
  const restored = limits.restore();
  store.fail();
  await restored;
  expect(passing(20)).toBe(10);
});

test('while a limit is not used, reports are rare, and hold until the next one', async () => {
  const clocks = clocksAt();
  const reports: { at: number; lifetimeMs: number }[] = [];
  const store: LimitStore = {
    settle: async (_name, { lifetimeMs }) => {
      reports.push({ at: clocks.now() / 1000, lifetimeMs });
      return { tokens: 0, used: 0, day: TODAY, othersInFlight: 0, members: 1, share: 1 };
    },
    close: async () => undefined,
  };
  const local = new LocalLimit('client', limit({ daily: 9 }), clocks);
  const sync = new LimitSync({ name: 'a', local, store, clock: clocks, onError: () => undefined });
  for (let second = 0; second <= 41; second += 1) {
    sync.beat();
    await setImmediate();
    clocks.pass(1_000);
  }
  const awake = Array.from({ length: 11 }, (_, at) => ({ at, lifetimeMs: 3_000 }));
  const asleep = [11, 26, 41].map((at) => ({ at, lifetimeMs: 45_000 }));
  expect(reports).toEqual([...awake, ...asleep]);
});

test('the more processes share a limit, the more rarely each reports', () => {
  const pauses = (settings: Parameters<typeof limit>[0], state: object): number[] => {
    const local = new LocalLimit('client', limit(settings), clocksAt());
    return [1, 8, 40, 1000].map((members) => {
      const nothing = { tokens: 0, used: 0, day: TODAY, othersInFlight: 0 };
      local.accept({ ...nothing, ...state, members, share: 1 / members }, local.report(3_000));
      return local.pauseMs;
    });
  };
  expect(pauses({ daily: 9 }, { used: 5 })).toEqual([50, 50, 250, 500]);
  expect(pauses({ concurrent: 9 }, { othersInFlight: 5 })).toEqual([50, 50, 250, 500]);
  // A quarter of the time in which the bucket fills.
  const rate = { perSecond: 100, burst: 40 };
  expect(pauses({ rate }, { tokens: 19 })).toEqual([50, 50, 100, 100]);
  // Half of the limit is free.
  expect(pauses({ daily: 9 }, { used: 4 })).toEqual([250, 250, 250, 500]);
  expect(pauses({ concurrent: 9 }, { othersInFlight: 4 })).toEqual([250, 250, 250, 500]);
  expect(pauses({ rate }, { tokens: 20 })).toEqual([100, 100, 100, 100]);
});

test('a report that was put off comes at once when half of the limit is used', async () => {
  const { passing, clocks, store } = setScene({ daily: 20 });
  expect(passing(1)).toBe(1);
  store.answer({ used: 1 });
  await setImmediate();
  clocks.pass(100);
  expect(passing(8)).toBe(8);
  expect(store.reports).toHaveLength(1);
  expect(passing(2)).toBe(2);
  expect(store.reports).toHaveLength(2);
});

test.each([
  ['ahead of', 500],
  ['behind', -500],
])('a day begins anew for a process whose clock is %s that of the store', async (_, ms) => {
  const midnight = Date.UTC(2026, 10, 21);
  const ofStore = clocksAt(midnight - 10_000);
  const store = new MemoryLimitStore(ofStore);
  const settings = { a: limit({ daily: 100 }) };
  const { limits, clocks, passing } = limitsOf(settings, {}, () => store, clocksAt(ofStore.epoch() + ms));
  const pass = async (passed: number) => {
    await limits.restore();
    ofStore.pass(passed);
    clocks.pass(passed);
  };
  expect(passing(90)).toBe(90);
  await pass(10_000 - 200);
  // One of them has the new day already.
  expect(passing(1)).toBe(1);
  await pass(400);
  await pass(60_000);
  expect(limits.useOf('a')?.daily?.used).toBeLessThanOrEqual(1);
  expect(passing(200)).toBeGreaterThanOrEqual(99);
  await limits.close();
});

test('what a process used while it heard nothing from the store does not count on later days', async () => {
  const clocks = clocksAt();
  const store = new MemoryLimitStore(clocks);
  const settle = store.settle.bind(store);
  const scene = limitsOf({ a: limit({ daily: 100 }) }, {}, () => store, clocks);
  await scene.limits.restore();
  store.settle = () => Promise.reject(new Error('gone'));
  expect(scene.passing(90)).toBe(90);
  await scene.limits.restore();
  clocks.pass(DAY_MS);
  expect(scene.passing(2)).toBe(2);
  store.settle = settle;
  await scene.limits.restore();
  expect(scene.limits.useOf('a')?.daily?.used).toBe(2);
  expect(scene.passing(200)).toBe(98);
  await scene.limits.close();
});

test('a response that comes after the day of its report is not taken for the next day', async () => {
  const { passing, clocks, limits, store } = setScene({ daily: 100 });
  expect(passing(90)).toBe(90);
  clocks.pass(DAY_MS);
  expect(passing(1)).toBe(1);
  store.answer({ used: 9 });
  await setImmediate();
  void limits.restore();
  expect(store.reports.at(-1)).toMatchObject({ total: 91, ofDay: 1, day: TODAY });
  store.fail();
  await setImmediate();
  expect(limits.useOf('a')?.daily?.used).toBe(1);
});

test('a process that leaves settles for the last time', async () => {
  const { passing, limits, store } = setScene({ daily: 9 });
  expect(passing(2)).toBe(2);
  store.answer({ used: 1 });
  const closed = limits.close();
  await until(() => store.reports.length === 2);
  store.answer({ used: 2 });
  await closed;
  expect(store.reports.at(-1)).toMatchObject({ total: 2, settled: 1, lifetimeMs: 0, inFlight: 0 });
});

test('requests that move to a process that has had none pass while the limit has room', async () => {
  const clocks = clocksAt();
  const store = new MemoryLimitStore(clocks);
  const settings = { a: limit({ rate: { perSecond: 200, burst: 200 } }) };
  const old = limitsOf(settings, {}, () => store, clocks);
  const fresh = limitsOf(settings, {}, () => store.join(), clocks);
  open.push({ ...old, store: heldStore() }, { ...fresh, store: heldStore() });
  await fresh.limits.restore();
  // 130 requests a second, each of which the old process has reported.
  for (let second = 0; second < 5; second += 1) {
    expect(old.passing(130)).toBe(130);
    await old.limits.restore();
    clocks.pass(1_000);
  }
  await fresh.limits.restore();
  expect(fresh.passing(20)).toBe(20);
});

test('bursts within the limit pass, though most of each comes to one process', async () => {
  const clocks = clocksAt();
  const store = new MemoryLimitStore(clocks);
  const settings = { a: limit({ rate: { perSecond: 100, burst: 100 } }) };
  const busy = limitsOf(settings, {}, () => store, clocks);
  const other = limitsOf(settings, {}, () => store.join(), clocks);
  open.push({ ...busy, store: heldStore() }, { ...other, store: heldStore() });
  const settle = async (): Promise<void> => {
    for (const { limits } of [busy, other]) await limits.restore();
  };
  await settle();
  const passed: number[] = [];
  for (let second = 0; second < 5; second += 1) {
    passed.push(busy.passing(64) + other.passing(16));
    await settle();
    clocks.pass(1_000);
    await settle();
  }
  // Nothing is known of the processes before the first one.
  expect(passed.slice(1)).toEqual([80, 80, 80, 80]);
});

test.each([
  { limit: 20, requests: [10, 10] },
  { limit: 20, requests: [16, 4] },
])(
  'requests in flight come down to $limit after two processes exceeded it at once ($requests)',
  async (scene) => {
    const clocks = clocksAt();
    const store = new MemoryLimitStore(clocks);
    const processes = [store, store.join()].map((joined, at) => ({
      store: joined,
      local: new LocalLimit('client', limit({ concurrent: scene.limit }), clocks),
      requests: scene.requests[at] as number,
      inFlight: 0,
    }));
    const inFlight = (): number => processes.reduce((sum, process) => sum + process.inFlight, 0);
    const admit = (process: (typeof processes)[number], requests: number): void => {
      for (let asked = 0; asked < requests; asked += 1) {
        if (process.local.shortage('a') !== undefined) continue;
        process.local.take('a');
        process.inFlight += 1;
      }
    };
    for (const process of processes) admit(process, scene.limit);
    expect(inFlight()).toBe(2 * scene.limit);

    // Requests end one at a time, and more than one for each of them come.
    const counts: number[] = [];
    for (let round = 0; round < 200; round += 1) {
      for (const { local, store: own } of processes) {
        const report = local.report(3_000);
        local.accept(await own.settle('a', report), report);
      }
      for (const process of processes) {
        if (process.inFlight > 0) {
          process.local.release();
          process.inFlight -= 1;
        }
        admit(process, process.requests);
      }
      clocks.pass(50);
      counts.push(inFlight());
    }
    const settled = counts.slice(100);
    // Each process may use the last free one.
    expect(Math.max(...settled)).toBeLessThanOrEqual(scene.limit + 1);
    expect(Math.min(...settled)).toBeGreaterThanOrEqual(scene.limit - 1);
  },
);

test('a process whose part is below zero admits nothing, and admits again when there is room', () => {
  const local = new LocalLimit('client', limit({ concurrent: 5 }), clocksAt());
  const accept = (othersInFlight: number): void =>
    local.accept(
      { tokens: 0, used: 0, day: TODAY, othersInFlight, members: 2, share: 0.5 },
      local.report(3_000),
    );
  accept(100);
  expect(local.shortage('a')).toMatchObject({ limit: 'concurrent' });
  expect(local.starved).toBe(false);
  expect(local.state).toBe('"client-concurrent";r=0');
  accept(4);
  expect(local.shortage('a')).toBeUndefined();
});

test.each([
  { rate: 10, burst: 10, processes: 4, clients: 40 },
  { rate: 5, burst: 5, processes: 4, clients: 40 },
  { rate: 5, burst: 5, processes: 16, clients: 100 },
  { rate: 10, burst: 2, processes: 4, clients: 40 },
  { rate: 10, burst: 10, processes: 8, clients: 80 },
])(
  'a limit of $rate/s with a burst of $burst is used by clients that come again at any of $processes processes',
  async (scene) => {
    const clocks = clocksAt();
    const store = new MemoryLimitStore(clocks);
    const settings = limit({ rate: { perSecond: scene.rate, burst: scene.burst } });
    const processes = Array.from({ length: scene.processes }, () => ({
      store: store.join(),
      local: new LocalLimit('deployment', settings, clocks),
    }));
    const sync = async ({ local, store: own }: (typeof processes)[number]): Promise<void> => {
      const report = local.report(3_000);
      local.accept(await own.settle('d', report), report);
    };
    for (const process of processes) await sync(process);
    let seed = 7;
    const random = (): number => {
      seed = (seed * 48_271) % 2_147_483_647;
      return seed / 2_147_483_647;
    };
    let admitted = 0;
    /** Returns how many seconds later the client comes again. */
    const ask = async (client: string): Promise<number> => {
      const process = processes[Math.floor(scene.processes * random())] as (typeof processes)[number];
      const shortage = process.local.shortage(client);
      if (shortage === undefined) {
        process.local.take(client);
        process.local.release();
        admitted += 1;
      }
      if (process.local.starved) await sync(process);
      return (shortage?.seconds ?? 1) * (1 + 0.1 * random());
    };
    // At least four times what the limit admits.
    const clients = Array.from({ length: scene.clients }, (_, at) => ({
      name: `c${at}`,
      next: 1_000 * random(),
    }));
    for (; clocks.now() < 60_000; clocks.pass(10)) {
      for (const client of clients.filter(({ next }) => next <= clocks.now())) {
        client.next = clocks.now() + 1_000 * (await ask(client.name));
      }
      if (clocks.now() % 50 === 0) for (const process of processes) await sync(process);
    }
    expect(admitted).toBeGreaterThan(0.9 * 60 * scene.rate);
    expect(admitted).toBeLessThanOrEqual(60 * scene.rate + 2 * scene.burst);
  },
);
