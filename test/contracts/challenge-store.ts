import { randomUUID } from 'node:crypto';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { type ChallengeStore, LEARNED_MS } from '../../src/challenges/store/store.ts';
import { aged, learned, ornate, parked, recalled } from '../support/challenges.ts';
import { until } from '../support/until.ts';

/** Somewhere that stores share what they hold. */
export interface StorePlace {
  /** Opens a store, as one more process would. */
  open(): Promise<ChallengeStore>;
  close(): Promise<void>;
}

const LONG_MS = 60_000;

/** Conformance tests for every store of challenges. */
export function keepsTheContract(name: string, openPlace: () => Promise<StorePlace>): void {
  describe(`the ${name} store`, () => {
    let place: StorePlace;
    let one: ChallengeStore;
    let other: ChallengeStore;
    let key: string;
    beforeAll(async () => {
      place = await openPlace();
    });
    afterAll(() => place.close());
    beforeEach(async () => {
      [one, other] = await Promise.all([place.open(), place.open()]);
      key = JSON.stringify(['a deployment', '\u00fc "quoted" {braced}', randomUUID()]);
    });
    afterEach(() => Promise.all([one.close(), other.close()]));

    const nonceHeld = async (): Promise<string | undefined> => (await other.load(key))?.challenge.nonce;

    describe('a shared challenge', () => {
      test('is there for everybody, with all its parts', async () => {
        const next = { challenge: ornate(''), cookies: ['a="b c"', 'e=\u00e9'], ageMs: 12.5 };
        expect(await one.load(key)).toBeUndefined();
        expect(await one.replace(key, undefined, next, LONG_MS)).toEqual({
          ...next,
          ageMs: expect.any(Number),
        });
        for (const store of [one, other]) {
          expect(await store.load(key)).toEqual({ ...next, ageMs: expect.any(Number) });
        }
      });

      test('takes the place of the one that was seen, and of none', async () => {
        expect((await one.replace(key, 'gone', aged('1'), LONG_MS)).challenge.nonce).toBe('1');
        expect((await other.replace(key, '1', aged('2'), LONG_MS)).challenge.nonce).toBe('2');
        expect(await nonceHeld()).toBe('2');
      });

      test.each([[undefined], ['0']])('does not take the place of a newer one: seen %p', async (seen) => {
        await one.replace(key, undefined, aged('1', 50), LONG_MS);
        const held = await other.replace(key, seen, aged('2'), LONG_MS);
        expect(held.challenge.nonce).toBe('1');
        expect(held.ageMs).toBeGreaterThanOrEqual(50);
        expect(await nonceHeld()).toBe('1');
      });

      test('is one for all who replace the same at once', async () => {
        await one.replace(key, undefined, aged('0'), LONG_MS);
        const nonces = Array.from({ length: 10 }, (_, at) => `${at + 1}`);
        const held = await Promise.all(
          nonces.map((nonce, at) => (at % 2 === 0 ? one : other).replace(key, '0', aged(nonce), LONG_MS)),
        );
        expect(new Set(held.map(({ challenge }) => challenge.nonce))).toEqual(new Set([await nonceHeld()]));
      });

      test('grows older', async () => {
        const start = performance.now();
        await one.replace(key, undefined, aged('1', 1_000), LONG_MS);
        // A store may take longer for this call than the age that is to be seen.
        const stored = performance.now();
        await until(() => performance.now() - stored > 30);
        const asked = performance.now();
        const held = await other.load(key);
        const now = performance.now();
        expect(held?.ageMs).toBeGreaterThan(1_015);
        // A store in another process takes the whole call for time in which the challenge grew older.
        expect(held?.ageMs).toBeLessThan(1_020 + now - start + now - asked);
      });

      test('is forgotten when it is too old, and replaced by anything', async () => {
        await one.replace(key, undefined, aged('1', 1_000), 1_500);
        expect(await nonceHeld()).toBe('1');
        expect(await until(async () => (await nonceHeld()) === undefined)).toBeLessThan(10_000);
        expect((await other.replace(key, undefined, aged('2'), LONG_MS)).challenge.nonce).toBe('2');
      });

      test('is gone once it was discarded, unless it is another one by now', async () => {
        await one.replace(key, undefined, aged('1'), LONG_MS);
        await other.discard(key, '0');
        expect(await nonceHeld()).toBe('1');
        await other.discard(key, '1');
        expect(await nonceHeld()).toBeUndefined();
        await other.discard(key, '1');
      });

      test('that is too old already is not held', async () => {
        await one.replace(key, undefined, aged('1', 1_001), 1_000);
        expect(await nonceHeld()).toBeUndefined();
      });

      test('belongs to its key', async () => {
        await one.replace(key, undefined, aged('1'), LONG_MS);
        expect(await other.load(`${key} `)).toBeUndefined();
      });
    });

    describe('a parked challenge', () => {
      test('is taken with all its parts, by one', async () => {
        const left = { ...parked('n', 4_294_967_295, 20), challenge: ornate(), cookies: ['a=b'] };
        await one.park(key, left, LONG_MS);
        const taken = await other.take(key);
        expect(taken).toEqual({ ...left, ageMs: expect.any(Number) });
        expect(taken?.ageMs).toBeGreaterThanOrEqual(20);
        expect(await one.take(key)).toBeUndefined();
      });

      test('is taken once, however many want it', async () => {
        const nonces = ['1', '2', '3', '4', '5'];
        await Promise.all(nonces.map((nonce) => one.park(key, parked(nonce, 1), LONG_MS)));
        const taken = await Promise.all(
          Array.from({ length: 20 }, (_, at) => (at % 2 === 0 ? one : other).take(key)),
        );
        expect(taken.flatMap((parked) => parked?.challenge.nonce ?? []).sort()).toEqual(nonces);
      });

      test('waits behind those that are younger', async () => {
        await one.park(key, parked('middle', 1, 2_000), LONG_MS);
        await one.park(key, parked('youngest', 1, 1_000), LONG_MS);
        await one.park(key, parked('oldest', 1, 3_000), LONG_MS);
        const nonces = [await other.take(key), await other.take(key), await other.take(key)];
        expect(nonces.map((parked) => parked?.challenge.nonce)).toEqual(['youngest', 'middle', 'oldest']);
      });

      test('is forgotten when it is too old', async () => {
        await one.park(key, parked('dies', 1, 1_000), 1_030);
        await one.park(key, parked('too old', 1, 1_001), 1_000);
        await one.park(key, parked('lives', 1, 2_000), LONG_MS);
        const start = performance.now();
        await until(() => performance.now() - start > 60);
        expect((await other.take(key))?.challenge.nonce).toBe('lives');
        expect(await other.take(key)).toBeUndefined();
      });
    });

    test('what was learned is there for everybody until somebody learns more', async () => {
      expect(await one.recall(key)).toBeUndefined();
      await one.learn(key, learned);
      expect(await other.recall(key)).toEqual(recalled);
      const more = { ...recalled, policy: 'single-use', lifetimeMs: undefined } as const;
      await other.learn(key, { ...more, ageMs: 0 });
      expect(await one.recall(key)).toEqual(more);
    });

    test('what was learned grows older with its time in the store, and is forgotten after an hour', async () => {
      await one.learn(key, { ...learned, ageMs: LEARNED_MS - 1_500 });
      const ageMs = (await other.recall(key))?.ageMs;
      expect(ageMs).toBeGreaterThanOrEqual(LEARNED_MS - 1_500);
      await until(async () => ((await other.recall(key))?.ageMs ?? LEARNED_MS) > (ageMs ?? 0));
      expect(await until(async () => (await one.recall(key)) === undefined)).toBeLessThan(10_000);
      await other.learn(key, learned);
      expect((await one.recall(key))?.ageMs).toBeLessThan(LEARNED_MS - 1_500);
    });

    test('what was learned too long ago is not kept', async () => {
      await one.learn(key, { ...learned, ageMs: LEARNED_MS });
      expect(await other.recall(key)).toBeUndefined();
    });

    test('that a credential was accepted is known to everybody, for its time', async () => {
      expect(await one.acceptedAgo(key)).toBeUndefined();
      const before = performance.now();
      await one.noteAccepted(key, LONG_MS);
      for (const each of [one, other]) {
        const ago = await each.acceptedAgo(key);
        expect(ago).toBeGreaterThanOrEqual(0);
        // Redis counts whole milliseconds.
        expect(ago).toBeLessThanOrEqual(performance.now() - before + 1);
      }
      expect(await other.acceptedAgo(`${key} `)).toBeUndefined();
      await other.noteAccepted(key, 500);
      await until(async () => (await one.acceptedAgo(key)) === undefined);
    });

    test('one process leads, for as long as it renews that', async () => {
      const leads = await Promise.all([one.lead(key, LONG_MS), other.lead(key, LONG_MS)]);
      expect(leads.filter(Boolean)).toHaveLength(1);
      const [leader, follower] = leads[0] ? [one, other] : [other, one];
      expect(await leader.lead(key, 500)).toBe(true);
      expect(await follower.lead(key, LONG_MS)).toBe(false);
      expect(await until(() => follower.lead(key, LONG_MS))).toBeLessThan(10_000);
      expect(await leader.lead(key, LONG_MS)).toBe(false);
    });

    test('one that leads for hours keeps away another one that asks for a minute', async () => {
      expect(await one.lead(key, 6 * 60 * 60_000)).toBe(true);
      expect(await other.lead(key, 60_000)).toBe(false);
    });

    test('a change is told to the others, and not to who made it', async () => {
      const heard: string[] = [];
      for (const used of [key, `${key} `]) await other.load(used);
      one.onChange(() => heard.push('one'));
      other.onChange((changed) => heard.push(changed));
      other.onChange((changed) => heard.push(changed));
      await one.replace(key, undefined, aged('1'), LONG_MS);
      await until(() => heard.length >= 2);
      // No change, so nothing is told.
      await one.replace(key, undefined, aged('2'), LONG_MS);
      await one.park(key, parked('3', 1), LONG_MS);
      await one.lead(key, LONG_MS);
      await one.learn(`${key} `, learned);
      await until(() => heard.length >= 4);
      expect(heard).toEqual([key, key, `${key} `, `${key} `]);
    });

    test('a closed store tells nothing any more', async () => {
      const heard: string[] = [];
      one.onChange((changed) => heard.push(`one: ${changed}`));
      const third = await place.open();
      await third.load(key);
      third.onChange((changed) => heard.push(changed));
      await one.close();
      await other.learn(key, learned);
      await until(() => heard.length > 0);
      await third.close();
      expect(heard).toEqual([key]);
    });
  });
}
