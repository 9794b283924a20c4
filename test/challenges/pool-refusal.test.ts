import { describe, expect, test } from '@jest/globals';
import type { Nonce } from '../../src/challenges/nonce.ts';
import { NoncePool } from '../../src/challenges/pool.ts';
import { MemoryChallengeStore } from '../../src/challenges/store/memory.ts';
import type { HeldChallenge } from '../../src/challenges/store/store.ts';
import { parseChallenges } from '../../src/digest/challenge.ts';
import { aged, attemptWith, obtain, parked, poolOptions, shareElsewhere } from '../support/challenges.ts';

/** A nonce of this age may have expired, so that its refusal does not show that nonces are bound to their process. */
const OLD_MS = 40_000;

function scene() {
  const time = { now: 1_000_000 };
  const clock = { now: () => time.now };
  const store = new MemoryChallengeStore(clock);
  const pool = new NoncePool(poolOptions({ clock }, store));
  /** The pool takes over a nonce of another process; undefined: it does not. */
  const adopt = async (name: string): Promise<Nonce | undefined> => {
    time.now += 1;
    await shareElsewhere(store, name, OLD_MS);
    await pool.adopt();
    return pool.reserve();
  };
  const adoptAndRefuse = async (name: string, times = 1): Promise<void> => {
    const nonce = (await adopt(name)) as Nonce;
    expect(nonce?.challenge.nonce).toBe(name);
    const attempts = Array.from({ length: times }, () => attemptWith(pool, nonce));
    for (const attempt of attempts) pool.refuse(attempt);
  };
  return { time, store, pool, adopt, adoptAndRefuse };
}

describe('after three old nonces of other processes were refused', () => {
  test('none is used for ten seconds', async () => {
    const { time, pool, adopt, adoptAndRefuse } = scene();
    for (const name of ['a', 'b', 'c']) await adoptAndRefuse(name);
    expect(await adopt('d')).toBe(undefined);
    time.now += 10_000;
    await pool.adopt();
    expect(pool.reserve()?.challenge.nonce).toBe('d');
  });

  test('the next one is used if one was accepted in between', async () => {
    const { pool, adopt, adoptAndRefuse } = scene();
    for (const name of ['a', 'b']) await adoptAndRefuse(name);
    pool.accept(attemptWith(pool, (await adopt('accepted')) as Nonce), undefined, undefined);
    await adoptAndRefuse('c');
    expect((await adopt('d'))?.challenge.nonce).toBe('d');
  });
});

test('own nonces that are accepted do not speak for those of other processes', async () => {
  const { pool, adopt, adoptAndRefuse } = scene();
  // The realm is known from now on.
  pool.refuse(attemptWith(pool, obtain(pool, parked('first', 0))));
  for (const name of ['a', 'b']) await adoptAndRefuse(name);
  pool.refuse(attemptWith(pool, obtain(pool, parked('own', 0))));
  await adoptAndRefuse('c');
  expect(await adopt('d')).toBe(undefined);
});

describe('nonces of other processes are used', () => {
  test('after two were refused, to several requests each', async () => {
    const { adopt, adoptAndRefuse } = scene();
    for (const name of ['a', 'b']) await adoptAndRefuse(name, 3);
    expect((await adopt('c'))?.challenge.nonce).toBe('c');
  });

  test('after own nonces were refused that had never been accepted', async () => {
    const { pool, adopt } = scene();
    for (const name of ['a', 'b', 'c'])
      pool.refuse(attemptWith(pool, pool.offer(pool.open(), parked(name, 0))));
    expect((await adopt('d'))?.challenge.nonce).toBe('d');
  });
});

describe('an upstream that sends a refused nonce again with another opaque', () => {
  const withOpaque = (opaque: string, more = ''): HeldChallenge => {
    const [challenge] = parseChallenges([
      `Digest realm="r", nonce="n", qop="auth", opaque="${opaque}"${more}`,
    ]);
    if (challenge === undefined) throw new Error('no challenge');
    return { challenge, cookies: [] };
  };

  test.each([
    ['and calls it stale, gets counts that begin anew with each opaque', true, [1, 1, 2]],
    ['without stale, gets counts that go on', false, [2, 3, 4]],
  ])('%s', (_, stale, expected) => {
    const { pool } = scene();
    const nonce = pool.offer(pool.open(), withOpaque('a'));
    pool.refuse(attemptWith(pool, nonce), stale, withOpaque('b').challenge);
    const counts = ['b', 'c', 'b'].map(
      (opaque) => attemptWith(pool, pool.offer(pool.open(), withOpaque(opaque))).nc,
    );
    expect(counts).toEqual(expected);
  });

  test('and calls it stale without a challenge that can be answered, gets counts that go on', () => {
    const { pool } = scene();
    const nonce = pool.offer(pool.open(), withOpaque('a'));
    pool.refuse(attemptWith(pool, nonce), true);
    expect(attemptWith(pool, pool.offer(pool.open(), withOpaque('b'))).nc).toBe(2);
  });
});

test('a nonce that several requests could use is used no more after a step to one request at a time', () => {
  const { pool } = scene();
  const old = obtain(pool, parked('old', 0));
  const [lower, higher] = [attemptWith(pool, old), attemptWith(pool, old)];
  pool.refuse(lower);
  const newer = obtain(pool, parked('newer', 0));
  expect(pool.reserve()).toBe(newer);
  // The upstream wants counts in order.
  pool.accept(higher, undefined, undefined);
  expect([pool.policy, pool.known, pool.reserve()]).toEqual(['exclusive', undefined, undefined]);
  expect(pool.begin(newer)).toBe(undefined);
});

test('an attempt is contested while other requests can begin to use its nonce', () => {
  const { pool } = scene();
  const pending = pool.open();
  const nonce = pool.offer(pending, parked('n', 0));
  const own = attemptWith(pool, nonce);
  expect(pool.isContested(own)).toBe(false);
  pool.accept(own, pending, undefined);
  const shared = attemptWith(pool, nonce);
  expect(pool.isContested(shared)).toBe(true);
  pool.refuse(shared);
  expect(pool.isContested(shared)).toBe(false);
});

test('a nonce that was refused does not come back with an earlier attempt that is accepted', () => {
  const { pool } = scene();
  const nonce = obtain(pool, parked('n', 0));
  const [late, refused] = [attemptWith(pool, nonce), attemptWith(pool, nonce)];
  pool.refuse(refused);
  pool.accept(late, pool.open(), undefined);
  expect([pool.known, pool.reserve()]).toEqual([undefined, undefined]);
});

test('of two handshakes at once, the nonce that was accepted first stays in use', () => {
  const { pool } = scene();
  const [first, second] = ['first', 'second'].map((name) => {
    const pending = pool.open();
    return { pending, nonce: pool.offer(pending, parked(name, 0)) };
  });
  for (const opened of [first, second])
    pool.accept(attemptWith(pool, opened?.nonce as Nonce), opened?.pending, undefined);
  expect(pool.reserve()).toBe(first?.nonce);
});

test('a nonce whose response was lost is used no more where each serves one request at a time', () => {
  const pool = new NoncePool(poolOptions({ policy: 'exclusive' }));
  const nonce = obtain(pool, aged('without a count'));
  pool.abandon(attemptWith(pool, pool.reserve() as Nonce));
  expect([nonce.uses, nonce.retired]).toEqual([1, true]);
});

test('idle nonces are dropped although a new one was accepted between two that were refused', () => {
  const pool = new NoncePool(poolOptions({ policy: 'exclusive' }));
  const [left, first, second] = ['left', '1', '2'].map((name) => obtain(pool, parked(name, 0)));
  pool.refuse(attemptWith(pool, second as Nonce));
  obtain(pool, parked('new', 0));
  pool.refuse(attemptWith(pool, first as Nonce));
  pool.dropIdle();
  expect(left?.retired).toBe(true);
});

test('idle nonces stay after one of them was refused to several requests', () => {
  const pool = new NoncePool(poolOptions({ policy: 'exclusive' }));
  const [left, used] = [obtain(pool, parked('left', 0)), obtain(pool, parked('used', 0))];
  const attempts = [attemptWith(pool, used), attemptWith(pool, used)];
  for (const attempt of attempts) pool.refuse(attempt);
  pool.dropIdle();
  expect(left.retired).toBe(false);
});
