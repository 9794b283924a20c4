import { describe, expect, test } from '@jest/globals';
import type { Nonce, NonceAttempt } from '../../src/challenges/nonce.ts';
import { NonceCounters } from '../../src/challenges/nonce-factory.ts';
import { NoncePool } from '../../src/challenges/pool.ts';
import { MemoryChallengeStore } from '../../src/challenges/store/memory.ts';
import { parseChallenges } from '../../src/digest/challenge.ts';
import { aged, attemptWith, obtain, parked, poolOptions } from '../support/challenges.ts';

const LONG_MS = 60_000;
/** More than any number of requests that the process before this one had under way at once. */
const RESTORED_AT_MOST = 64;

describe('at the start, a pool takes over', () => {
  test('a bounded number of idle nonces', async () => {
    const store = new MemoryChallengeStore();
    for (let count = 0; count < RESTORED_AT_MOST + 2; count += 1)
      await store.park('k', parked(`${count}`, 1), LONG_MS);
    await new NoncePool(poolOptions({ policy: 'exclusive' }, store)).restore();
    const left = [await store.take('k'), await store.take('k'), await store.take('k')];
    expect(left.map((each) => each !== undefined)).toEqual([true, true, false]);
  });

  test('idle nonces beside challenges that it would not answer', async () => {
    const store = new MemoryChallengeStore();
    const challenge = { ...parked('unfit', 1).challenge, algorithm: sha256() };
    await store.park('k', parked('older', 1, 20), LONG_MS);
    await store.park('k', { ...parked('unfit', 1, 10), challenge }, LONG_MS);
    const pool = new NoncePool(poolOptions({ policy: 'exclusive' }, store));
    await pool.restore();
    expect(pool.reserve()?.challenge.nonce).toBe('older');
  });
});

test('a nonce is left to nobody if the upstream issues it again here before its last request is over', async () => {
  const store = new MemoryChallengeStore();
  const counters = new NonceCounters();
  const [pool, next] = [0, 1].map(() => new NoncePool(poolOptions({ counters }, store.join()))) as [
    NoncePool,
    NoncePool,
  ];
  const attempt = pool.begin(obtain(pool, parked('n', 0))) as NonceAttempt;
  await pool.handOver();
  const again = next.offer(next.open(), parked('n', 0));
  attempt.end();
  expect([await store.take('k'), attemptWith(next, again).nc]).toEqual([undefined, 3]);
});

describe('a nonce that a newer one replaces is not tried again', () => {
  const LIFE_MS = 10_000;

  /** A pool that knows for a while how long nonces live. */
  function scene() {
    const time = { now: 0 };
    const pool = new NoncePool(poolOptions({ clock: { now: () => time.now } }));
    const replace = (name: string) => {
      const pending = pool.open(pool.known);
      const nonce = pool.offer(pending, aged(name));
      pool.accept(attemptWith(pool, nonce), pending, undefined);
      return nonce;
    };
    const lived = replace('lived');
    time.now += LIFE_MS;
    pool.refuse(attemptWith(pool, lived), true);
    expect(pool.lifetimeMs).toBe(LIFE_MS);
    time.now += 60_000;
    return { time, pool, replace };
  }

  test('if it was young then', () => {
    const { time, pool, replace } = scene();
    const young = replace('young');
    time.now += 0.7 * LIFE_MS;
    const newer = replace('newer');
    time.now += LIFE_MS;
    expect([young.trial, pool.reserve()]).toEqual([undefined, newer]);
  });

  test('if one was tried a short while before', () => {
    const { time, pool, replace } = scene();
    const tried = replace('tried');
    time.now += 0.8 * LIFE_MS;
    const old = replace('old');
    time.now += 0.8 * LIFE_MS;
    const newer = replace('newer');
    expect([tried.trial, old.trial]).toEqual(['age', undefined]);
    expect(pool.reserve()).toBe(tried);
    time.now += LIFE_MS;
    expect(pool.reserve()).toBe(newer);
  });

  test('for two minutes if the upstream refused the one that was tried', () => {
    const { time, pool, replace } = scene();
    replace('tried');
    time.now += 0.8 * LIFE_MS;
    replace('newer');
    time.now += 0.3 * LIFE_MS;
    pool.refuse(attemptWith(pool, pool.reserve() as Nonce), true);
    const trials = [100_000, 20_000].map((ms) => {
      time.now += ms;
      const nonce = pool.known as Nonce;
      replace('newest');
      return nonce.trial;
    });
    expect(trials).toEqual([undefined, 'age']);
  });
});

function sha256() {
  const [challenge] = parseChallenges(['Digest realm="r", nonce="n", algorithm=SHA-256']);
  if (challenge === undefined) throw new Error('no challenge');
  return challenge.algorithm;
}
