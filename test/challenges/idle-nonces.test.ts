import { describe, expect, test } from '@jest/globals';
import { type Nonce, type NonceAttempt, NonceCounters } from '../../src/challenges/nonce.ts';
import { NoncePool, type PoolOptions } from '../../src/challenges/pool.ts';
import { MemoryChallengeStore } from '../../src/challenges/store/memory.ts';
import type { HeldChallenge, NoncePolicy } from '../../src/challenges/store/store.ts';
import { parseChallenges } from '../../src/digest/challenge.ts';
import { attemptWith, obtain, parked, poolOptions } from '../support/challenges.ts';

const LIFE_MS = 10_000;
const LONG_MS = 60_000;
/** More than any number of requests that the process before this one had under way at once. */
const RESTORED_AT_MOST = 64;

function held(nonce: string): HeldChallenge {
  return { challenge: parked(nonce, 0).challenge, cookies: [] };
}

function scene(policy: NoncePolicy | 'auto', more: Partial<PoolOptions> = {}) {
  const time = { now: 0 };
  const renewed: Nonce[] = [];
  const steps: string[] = [];
  const store = new MemoryChallengeStore({ now: () => time.now });
  const change: Partial<PoolOptions> = {
    clock: { now: () => time.now },
    policy,
    onStep: (to, from) => steps.push(`${from} > ${to}`),
    renew: async (nonce) => void renewed.push(nonce),
    ...more,
  };
  const pool = new NoncePool(poolOptions(change, store));
  const obtain = (name: string, nextnonce?: string): Nonce => {
    const pending = pool.open();
    const nonce = pool.offer(pending, held(name));
    pool.accept(attemptWith(pool, nonce), pending, nextnonce);
    pool.close(pending);
    return nonce;
  };
  const use = (nonce: Nonce, nextnonce?: string): void =>
    pool.accept(attemptWith(pool, nonce), undefined, nextnonce);
  /** The upstream is seen to refuse a nonce for its age. */
  const learnLife = (): void => {
    const nonce = obtain('lived');
    time.now += LIFE_MS;
    pool.refuse(attemptWith(pool, nonce), true);
    expect(pool.lifetimeMs).toBe(LIFE_MS);
  };
  return { time, renewed, steps, pool, store, obtain, use, learnLife };
}

describe('with the policy exclusive', () => {
  test('a nonce serves one request at a time, the youngest first', () => {
    const { pool, obtain, use } = scene('exclusive');
    const [first, second] = [obtain('1'), obtain('2')];
    expect([pool.reserve(), pool.reserve(), pool.reserve()]).toEqual([second, first, undefined]);
    use(first);
    expect([pool.reserve(), pool.reserve()]).toEqual([first, undefined]);
  });

  test('a nonce that was refused is not used again', () => {
    const { pool, obtain, use } = scene('exclusive');
    const nonce = obtain('1');
    const taken = pool.reserve() as Nonce;
    const [good, refused] = [attemptWith(pool, taken), attemptWith(pool, taken)];
    pool.refuse(refused);
    pool.accept(good, undefined, undefined);
    expect([nonce.retired, pool.reserve()]).toEqual([true, undefined]);
    const other = obtain('2');
    other.retire();
    expect(pool.reserve()).toBe(undefined);
    use(obtain('3'));
    expect(pool.reserve()?.challenge.nonce).toBe('3');
  });

  test('a nonce that the upstream names for the next request takes its place', () => {
    const { pool, obtain } = scene('exclusive');
    obtain('1', '2');
    expect(pool.reserve()?.challenge.nonce).toBe('2');
    expect(pool.reserve()).toBe(undefined);
  });

  test('a nonce that is too old is not used', () => {
    const { pool, time, learnLife, obtain } = scene('exclusive');
    learnLife();
    const nonce = obtain('1');
    time.now += LIFE_MS - 1;
    expect(pool.reserve()).toBe(nonce);
    pool.accept(attemptWith(pool, nonce), undefined, undefined);
    time.now += 1;
    expect(pool.reserve()).toBe(undefined);
  });

  test('a nonce that is used is renewed once, towards the end of its life', () => {
    const { time, renewed, learnLife, obtain, use } = scene('exclusive');
    learnLife();
    const nonce = obtain('1');
    time.now += 0.7 * LIFE_MS;
    use(nonce);
    expect(renewed).toEqual([]);
    time.now += 1;
    use(nonce);
    use(nonce);
    expect(renewed).toEqual([nonce]);
  });

  test('a nonce that no request has used is not renewed', () => {
    const { pool, time, renewed, learnLife } = scene('exclusive');
    learnLife();
    const pending = pool.open();
    pool.offer(pending, held('1'));
    time.now += 0.9 * LIFE_MS;
    pool.acceptUntried(pending);
    expect([renewed, pool.reserve()?.challenge.nonce]).toEqual([[], '1']);
  });

  test('a nonce towards the end of its life goes on where nonces are not renewed', () => {
    const { pool, time, learnLife, obtain, use } = scene('exclusive', { renew: undefined });
    learnLife();
    const nonce = obtain('1');
    time.now += 0.9 * LIFE_MS;
    use(nonce);
    expect(pool.reserve()).toBe(nonce);
  });

  test('a nonce that another process left is used after those that were obtained here', async () => {
    const { pool, store, obtain } = scene('exclusive');
    await store.park('k', parked('left', 3), 60_000);
    const own = obtain('own');
    await pool.restore();
    expect(pool.reserve()).toBe(own);
    const left = pool.reserve();
    expect([left?.challenge.nonce, left?.begin(0)?.nc]).toEqual(['left', 4]);
  });
});

describe('with the policy single-use', () => {
  test('a nonce serves one request, and the one that the upstream names for the next serves another', () => {
    const { pool, obtain, use } = scene('single-use');
    obtain('1');
    expect(pool.reserve()).toBe(undefined);
    obtain('2', '3');
    const next = pool.reserve() as Nonce;
    expect(next.challenge.nonce).toBe('3');
    use(next);
    expect(pool.reserve()).toBe(undefined);
  });

  test('a nonce that served is left to no other process', async () => {
    const { pool, store, obtain } = scene('single-use');
    obtain('1');
    await pool.handOver();
    expect(await store.take('k')).toBe(undefined);
  });

  test('one that another process has used is not used here', async () => {
    const { pool, store } = scene('single-use');
    await store.park('k', parked('used', 1), 60_000);
    await store.park('k', parked('fresh', 0), 60_000);
    await pool.restore();
    expect([pool.reserve()?.challenge.nonce, pool.reserve()]).toEqual(['fresh', undefined]);
  });
});

/** Three nonces are refused when they are used for the second time. */
function refuseReuses({ pool, time, obtain }: ReturnType<typeof scene>): void {
  for (const name of ['a', 'b', 'c']) {
    time.now += 10;
    const nonce = obtain(name);
    time.now += 10;
    pool.refuse(attemptWith(pool, nonce));
    time.now += 10;
  }
  obtain('confirms that the password is right');
}

describe('with a learned policy', () => {
  test('reuses that are refused lead to exclusive and then single-use', () => {
    const it = scene('auto');
    refuseReuses(it);
    expect(it.steps).toEqual(['shared > exclusive']);
    const left = [it.pool.reserve()?.challenge.nonce, it.pool.reserve()];
    expect(left).toEqual(['confirms that the password is right', undefined]);
    refuseReuses(it);
    expect([it.steps, it.pool.policy]).toEqual([
      ['shared > exclusive', 'exclusive > single-use'],
      'single-use',
    ]);
  });
});

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
  attempt.nonce.endAttempt();
  expect([await store.take('k'), attemptWith(next, again).nc]).toEqual([undefined, 3]);
});

function sha256() {
  const [challenge] = parseChallenges(['Digest realm="r", nonce="n", algorithm=SHA-256']);
  if (challenge === undefined) throw new Error('no challenge');
  return challenge.algorithm;
}
