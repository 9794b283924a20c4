import { describe, expect, test } from '@jest/globals';
import type { Nonce, NonceAttempt } from '../../src/challenges/nonce.ts';
import { NoncePool } from '../../src/challenges/pool.ts';
import { MemoryChallengeStore } from '../../src/challenges/store/memory.ts';
import { aged, attemptWith, parked, poolOptions, turns } from '../support/challenges.ts';

function scene() {
  const store = new MemoryChallengeStore();
  const time = { now: 1_000_000 };
  const steps: string[] = [];
  const pool = new NoncePool(
    poolOptions(
      { clock: { now: () => time.now }, onStep: (to, from) => steps.push(`${from} > ${to}`) },
      store,
    ),
  );
  const obtain = (name: string, challenge = parked(name, 0)): Nonce => {
    const pending = pool.open();
    const nonce = pool.offer(pending, challenge);
    pool.accept(attemptWith(pool, nonce), pending, undefined);
    pool.close(pending);
    time.now += 10;
    return nonce;
  };
  return { time, steps, pool, store, obtain };
}

describe('refusals of a nonce that was accepted before', () => {
  test('teach nothing before an attempt is accepted that was sent later: the password may have changed', () => {
    const { time, steps, pool, obtain } = scene();
    const nonces = ['a', 'b', 'c'].map((name) => {
      const nonce = obtain(name);
      pool.refuse(attemptWith(pool, nonce));
      time.now += 10;
      return nonce;
    });
    expect(nonces.every(({ retired }) => retired)).toBe(true);
    expect(steps).toEqual([]);
    obtain('d');
    expect(steps).toEqual(['shared > exclusive']);
  });

  test('are not confirmed by an attempt that was sent before them', () => {
    const { time, steps, pool, obtain } = scene();
    const early = obtain('early');
    const sentBefore = pool.begin(early) as NonceAttempt;
    for (const name of ['a', 'b', 'c']) {
      time.now += 10;
      const pending = pool.open(early);
      const nonce = pool.offer(pending, parked(name, 0));
      nonce.noteAccepted(1);
      pool.refuse(attemptWith(pool, nonce));
    }
    pool.accept(sentBefore, undefined, undefined);
    expect(steps).toEqual([]);
    time.now += 10;
    obtain('later');
    expect(steps).toEqual(['shared > exclusive']);
  });

  test('that are called stale teach at once', () => {
    const { time, steps, pool, obtain } = scene();
    for (const name of ['a', 'b', 'c']) {
      pool.refuse(attemptWith(pool, obtain(name)), true);
      time.now += 10;
    }
    expect(steps).toEqual(['shared > exclusive']);
  });

  test('count once for all nonces that one event at the upstream has hit', () => {
    const { time, steps, pool, obtain } = scene();
    const nonces = ['a', 'b', 'c', 'd'].map((name) => obtain(name));
    time.now += 10;
    for (const nonce of nonces) pool.refuse(attemptWith(pool, nonce), true);
    expect(steps).toEqual([]);
  });

  test('count once with a nonce that was issued within a round trip after them', () => {
    const { time, steps, pool, obtain } = scene();
    for (const name of ['a', 'b', 'c', 'd']) {
      const nonce = obtain(name);
      const attempt = attemptWith(pool, nonce);
      time.now += 100;
      pool.refuse(attempt, true);
      time.now += 40;
    }
    expect(steps).toEqual([]);
    for (const name of ['e', 'f', 'g']) {
      time.now += 200;
      pool.refuse(attemptWith(pool, obtain(name)), true);
    }
    expect(steps).toEqual(['shared > exclusive']);
  });

  test('while other requests used it lead to exclusive, not while none did', () => {
    const refuse = (isContested: boolean): string[] => {
      const { time, steps, pool, obtain } = scene();
      for (const name of ['a', 'b', 'c']) {
        const nonce = obtain(name);
        const [first, second, third] = [pool.begin(nonce), pool.begin(nonce), pool.begin(nonce)];
        pool.accept(first as NonceAttempt, undefined, undefined);
        first?.end();
        second?.end();
        if (!isContested) third?.end();
        pool.refuse(second as NonceAttempt);
        third?.end();
        time.now += 10;
      }
      obtain('confirms that the password is right');
      return steps;
    };
    expect([refuse(true), refuse(false)]).toEqual([['shared > exclusive'], []]);
  });
});

describe('other processes are told', () => {
  const facts = { realm: 'r\u00e9alm', algorithm: 'MD5', policy: 'shared', portable: true };

  test('whether nonces have a count, and how long they live', async () => {
    const { time, pool, store, obtain } = scene();
    const nonce = obtain('n', { ...parked('n', 0) });
    await turns();
    expect(await store.recall('k')).toEqual({ ...facts, counted: true, lifetimeMs: undefined });
    time.now += 9_990;
    pool.refuse(attemptWith(pool, nonce), true);
    await turns();
    expect(await store.recall('k')).toEqual({ ...facts, counted: true, lifetimeMs: 10_000 });
    const pending = pool.open();
    pool.accept(attemptWith(pool, pool.offer(pending, aged('m'))), pending, undefined);
    await turns();
    expect(await store.recall('k')).toMatchObject({ counted: false });
  });

  test('of each step of the policy', async () => {
    const { time, pool, store, obtain } = scene();
    for (const name of ['a', 'b', 'c']) {
      pool.refuse(attemptWith(pool, obtain(name)), true);
      time.now += 10;
    }
    await turns();
    expect(await store.recall('k')).toMatchObject({ policy: 'exclusive' });
  });

  test('nothing while nothing is known of the upstream', async () => {
    const { pool, store } = scene();
    await pool.restore();
    await turns();
    expect(await store.recall('k')).toBe(undefined);
  });
});
