import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import type { LimitStore, Report } from '../../src/limits/store.ts';
import { closing } from '../support/closing.ts';
import { end, limit, limitsOf, today, unused } from '../support/limited.ts';
import { until } from '../support/until.ts';

/** Somewhere that processes share limits. */
export interface LimitPlace {
  /** Opens a store, as one more process would. */
  open(): LimitStore;
  close(): Promise<void>;
}

/** Conformance tests for every store of limits. */
export function keepsTheLimitContract(where: string, openPlace: () => Promise<LimitPlace>): void {
  describe(`the limits in ${where}`, () => {
    let place: LimitPlace;
    let client: string;
    let name: string;
    beforeAll(async () => {
      place = await openPlace();
    });
    afterAll(() => place.close());
    beforeEach(() => {
      client = randomUUID();
      name = `client:${client}`;
    });

    function openStore(): LimitStore {
      const store = place.open();
      closing.push(() => store.close());
      return store;
    }

    const report = (change: Partial<Report> = {}): Report => ({ ...unused(), ...change });

    test('all processes settle with one bucket, one day and one count of requests under way', async () => {
      const [one, other] = [openStore(), openStore()];
      await one.settle(name, report());
      await other.settle(name, report());
      await one.settle(name, report({ total: 30, wanted: 30, inFlight: 7 }));
      const state = await other.settle(name, report({ total: 10, wanted: 10, inFlight: 2 }));
      expect(state).toMatchObject({ used: 40, othersInFlight: 7, members: 2 });
      expect(state.tokens).toBeCloseTo(60, 1);
      expect(state.share).toBeCloseTo(11 / 42, 1);
      expect(await one.settle(`${name} b`, report())).toMatchObject({
        used: 0,
        members: 1,
        share: 1,
        tokens: 100,
      });
    });

    test('a report that comes twice is charged once', async () => {
      const store = openStore();
      await store.settle(name, report({ total: 5 }));
      await store.settle(name, report({ total: 5 }));
      const state = await store.settle(name, report({ total: 7 }));
      expect([state.used, Math.round(state.tokens)]).toEqual([7, 93]);
    });

    test('requests that are forgiven are not charged to the bucket, and count for the day', async () => {
      const state = await openStore().settle(name, report({ total: 30, forgiven: 20 }));
      expect([state.used, Math.round(state.tokens)]).toEqual([30, 90]);
    });

    test('the bucket fills with time, up to the burst, and its debt is bounded', async () => {
      const store = openStore();
      const rate = { perSecond: 100, burst: 10 };
      expect((await store.settle(name, report({ ...rate, tokens: 10, total: 500 }))).tokens).toBe(-10);
      const state = async () => await store.settle(name, report({ ...rate, total: 500 }));
      await until(async () => (await state()).tokens > 0);
      await until(async () => (await state()).tokens === 10);
      expect((await state()).tokens).toBe(10);
    });

    test('without a rate there is no bucket, and one that is set later begins as reported', async () => {
      const store = openStore();
      const unlimited = { perSecond: 0, burst: 0, tokens: 0 };
      const { tokens } = await store.settle(name, report({ ...unlimited, total: 40 }));
      expect(Math.abs(tokens)).toBe(0);
      const limited = await store.settle(name, report({ total: 40, tokens: 50 }));
      expect([Math.round(limited.tokens), limited.used]).toEqual([50, 40]);
    });

    test('the share of a process follows its requests of about the last second', async () => {
      const [one, other] = [openStore(), openStore()];
      await other.settle(name, report());
      expect((await one.settle(name, report({ total: 9, wanted: 9 }))).share).toBeGreaterThan(0.85);
      await until(async () => (await one.settle(name, report({ total: 9 }))).share < 0.8);
    });

    test('a process without requests has half of an equal share, for those that come all at once', async () => {
      const [one, other] = [openStore(), openStore()];
      await one.settle(name, report({ total: 999, wanted: 999 }));
      expect((await other.settle(name, report())).share).toBe(0.25);
    });

    test('a process that leaves, or says nothing for its lifetime, no longer counts', async () => {
      const [one, other, third] = [openStore(), openStore(), openStore()];
      await one.settle(name, report({ inFlight: 3 }));
      await other.settle(name, report({ inFlight: 4, lifetimeMs: 1 }));
      await one.settle(name, report({ lifetimeMs: 0 }));
      await until(async () => (await third.settle(name, report())).members === 1);
      expect(await third.settle(name, report())).toMatchObject({ members: 1, othersInFlight: 0 });
    });

    test('a store that lost everything is told what is known, and not what was yesterday', async () => {
      const store = openStore();
      const known = { total: 20, settled: 20, tokens: 3, used: 20 };
      const { tokens, used } = await store.settle(name, report(known));
      expect([Math.round(tokens), used]).toEqual([3, 20]);
      const other = `${name} b`;
      await store.settle(other, report({ ...known, day: today() - 1 }));
      expect((await store.settle(other, report({ total: 20, settled: 20 }))).used).toBe(0);
    });

    test('requests that are reported after their day do not count for the next one', async () => {
      const store = openStore();
      expect((await store.settle(name, report({ total: 30, ofDay: 10 }))).used).toBe(10);
      expect((await store.settle(name, report({ total: 33, ofDay: 13 }))).used).toBe(13);
    });

    test('a process whose clock has another day has the count and the day of the store', async () => {
      const [one, other] = [openStore(), openStore()];
      await one.settle(name, report({ total: 90 }));
      const ahead = report({ total: 3, used: 500, day: today() + 1 });
      expect(await other.settle(name, ahead)).toMatchObject({ used: 93, day: today() });
    });

    /** Two processes with the same limits, which have heard of each other. */
    async function twoProcesses(settings: Parameters<typeof limit>[0]) {
      const [one, other] = [0, 1].map(() => limitsOf({ [client]: limit(settings) }, {}, () => place.open()));
      if (one === undefined || other === undefined) throw new Error('no scene');
      closing.push(...[one, other].map((scene) => () => scene.limits.close()));
      for (const _round of [1, 2]) for (const { limits } of [one, other]) await limits.restore();
      return { one, other };
    }

    test('a burst is divided, and the part that the others do not use can be had', async () => {
      const { one, other } = await twoProcesses({ rate: { perSecond: 0.001, burst: 40 } });
      expect(one.passing(40, client)).toBe(20);
      let passed = 20;
      for (let round = 1; round <= 20; round += 1) {
        await one.limits.restore();
        passed += one.passing(40, client);
      }
      await other.limits.restore();
      passed += other.passing(40, client);
      expect(passed).toBe(40);
    });

    test('places are shared, and those of one process are free for the other once they are', async () => {
      const { one, other } = await twoProcesses({ concurrent: 4 });
      const held = [one.ask(client), one.ask(client)];
      await one.limits.restore();
      await other.limits.restore();
      const others = [other.ask(client), other.ask(client), other.ask(client)];
      expect(others.map((answer) => answer instanceof Error)).toEqual([false, true, true]);
      for (const answer of [...held, ...others]) end(answer);
      await one.limits.restore();
      await other.limits.restore();
      expect(other.passing(4, client)).toBe(4);
    });

    test('the last request of a day passes wherever it comes', async () => {
      const { one, other } = await twoProcesses({ daily: 3 });
      const passed: number[] = [];
      for (const scene of [one, other, other, one]) {
        passed.push(scene.passing(1, client));
        await scene.limits.restore();
        await (scene === one ? other : one).limits.restore();
      }
      expect(passed).toEqual([1, 1, 1, 0]);
    });
  });
}
