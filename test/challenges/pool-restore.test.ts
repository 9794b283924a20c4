import { describe, expect, test } from '@jest/globals';
import { Cancellation } from '../../src/base/cancellation.ts';
import type { Nonce } from '../../src/challenges/nonce.ts';
import { PendingChallenge } from '../../src/challenges/pending-challenges.ts';
import { NoncePool, type PoolOptions } from '../../src/challenges/pool.ts';
import { SharedChallenges } from '../../src/challenges/shared-challenges.ts';
import { MemoryChallengeStore } from '../../src/challenges/store/memory.ts';
import type { ChallengeStore, HeldChallenge, Learned } from '../../src/challenges/store/store.ts';
import { parseChallenges } from '../../src/digest/challenge.ts';
import { attemptWith, obtain, poolOptions, turns } from '../support/challenges.ts';

const LONG_MS = 10 * 60_000;
const time = { now: 1_000_000 };
const clock = { now: () => time.now };
const facts: Learned = {
  realm: 'r',
  algorithm: 'MD5',
  policy: 'shared',
  counted: false,
  portable: true,
  lifetimeMs: undefined,
  ageMs: 0,
};

function held(nonce: string, parameters = ''): HeldChallenge {
  const [challenge] = parseChallenges([`Digest realm="r", nonce="${nonce}"${parameters}`]);
  if (challenge === undefined) throw new Error('no challenge');
  return { challenge, cookies: [] };
}

const counted = (nonce: string): HeldChallenge => held(nonce, ', qop="auth"');

function poolOn(store: ChallengeStore, change: Partial<PoolOptions> = {}): NoncePool {
  return new NoncePool(poolOptions({ clock, ...change }, store));
}

describe('at the start, a pool takes over', () => {
  test('what the pool of another credential has learned', async () => {
    const former = poolOn(new MemoryChallengeStore(clock));
    obtain(former, held('n'));
    const { known } = former;
    time.now += 20_000;
    former.refuse(attemptWith(former, known as Nonce), true);
    expect(former.lifetimeMs).toBe(20_000);
    const pool = poolOn(new MemoryChallengeStore(clock));
    await pool.restore(former);
    expect(pool.lifetimeMs).toBe(20_000);
    const experienced = poolOn(new MemoryChallengeStore(clock));
    obtain(experienced, held('n'));
    await experienced.restore(former);
    expect(experienced.lifetimeMs).toBe(undefined);
    const fresh = poolOn(new MemoryChallengeStore(clock));
    await fresh.restore(poolOn(new MemoryChallengeStore(clock)));
    expect([fresh.lifetimeMs, fresh.policy]).toEqual([undefined, 'shared']);
  });

  test('nothing from a pool that has learned nothing, although its policy is another one', async () => {
    const pool = poolOn(new MemoryChallengeStore(clock));
    await pool.restore(poolOn(new MemoryChallengeStore(clock), { policy: 'exclusive' }));
    expect(pool.policy).toBe('shared');
  });

  test.each<[string, Partial<Learned>]>([
    ['its policy', { policy: 'exclusive' }],
    ['that nonces of other processes do not work', { portable: false }],
  ])('from the pool of another credential %s', async (_, change) => {
    const store = new MemoryChallengeStore(clock);
    await store.learn('former', { ...facts, ...change });
    await store.replace('k', undefined, { ...held('n'), ageMs: 0 }, LONG_MS);
    const former = poolOn(store, { sharedChallenges: new SharedChallenges({ key: 'former', store }) });
    await former.restore();
    const pool = poolOn(store);
    await pool.restore(former);
    expect([pool.policy, pool.known]).toEqual([change.policy ?? 'shared', undefined]);
  });

  test('what others learned: policy and lifetime', async () => {
    const store = new MemoryChallengeStore(clock);
    await store.learn('k', { ...facts, policy: 'exclusive', lifetimeMs: 30_000 });
    const pool = poolOn(store);
    await pool.restore();
    expect([pool.policy, pool.lifetimeMs]).toEqual(['exclusive', 30_000]);
  });

  test('nothing that was learned about another upstream', async () => {
    const store = new MemoryChallengeStore(clock);
    await store.learn('k', { ...facts, realm: 'another', policy: 'exclusive', lifetimeMs: 30_000 });
    const pool = poolOn(store);
    obtain(pool, held('n'));
    await pool.restore();
    expect([pool.policy, pool.lifetimeMs]).toEqual(['shared', undefined]);
  });

  test('all idle nonces that were left, the youngest to be used first', async () => {
    const store = new MemoryChallengeStore(clock);
    const owner = poolOn(store, { policy: 'exclusive' });
    for (const name of ['1', '2', '3']) {
      obtain(owner, counted(name));
      time.now += 1;
    }
    await owner.handOver();
    const pool = poolOn(store, { policy: 'exclusive' });
    await pool.restore();
    const names = Array.from({ length: 4 }, () => pool.reserve()?.challenge.nonce);
    expect(names).toEqual(['3', '2', '1', undefined]);
  });

  test.each(['shared', 'exclusive'] as const)(
    'no nonce where those of other processes do not work, and leaves them there: %s',
    async (policy) => {
      const store = new MemoryChallengeStore(clock);
      await store.replace('k', undefined, { ...held('n'), ageMs: 5 }, LONG_MS);
      await store.park('k', { ...counted('m'), ageMs: 5, cnonce: 'c', count: 1 }, LONG_MS);
      await store.learn('k', { ...facts, policy, portable: false });
      const pool = poolOn(store);
      await pool.restore();
      expect([pool.policy, pool.known, pool.reserve()]).toEqual([policy, undefined, undefined]);
      const left = [await store.load('k'), await store.take('k')];
      expect(left.map((each) => each?.challenge.nonce)).toEqual(['n', 'm']);
    },
  );

  test('no nonce in the place of the one that it has', async () => {
    const store = new MemoryChallengeStore(clock);
    const pool = poolOn(store);
    const own = obtain(pool, counted('own'));
    await store.replace('k', undefined, { ...held('other'), ageMs: 0 }, LONG_MS);
    await pool.restore();
    expect(pool.reserve()).toBe(own);
  });

  test('nothing that others could use if it has a nonce', async () => {
    const store = new MemoryChallengeStore(clock);
    const pool = poolOn(store);
    obtain(pool, counted('own'));
    await store.park('k', { ...counted('left'), ageMs: 0, cnonce: 'c', count: 1 }, LONG_MS);
    await pool.restore();
    expect((await store.take('k'))?.challenge.nonce).toBe('left');
  });

  test('no nonce in the place of one that it obtains while the store is asked', async () => {
    const store = new MemoryChallengeStore(clock);
    await store.replace('k', undefined, { ...held('other'), ageMs: 0 }, LONG_MS);
    const load = store.load.bind(store);
    let own: Nonce | undefined;
    const pool = poolOn(
      Object.assign(store, {
        load: async (key: string) => {
          own = obtain(pool, counted('own'));
          return load(key);
        },
      }),
    );
    await pool.restore();
    expect([pool.reserve(), own?.retired]).toEqual([own, false]);
  });

  test('no challenge that this process would not answer, which it removes', async () => {
    const store = new MemoryChallengeStore(clock);
    await store.replace('k', undefined, { ...held('n', ', algorithm=SHA-256'), ageMs: 0 }, LONG_MS);
    const pool = poolOn(store);
    await pool.restore();
    expect([pool.known, await store.load('k')]).toEqual([undefined, undefined]);
  });
});

describe('nonces of others that are refused', () => {
  test('are removed from the store, and after three of them none is taken for a while', async () => {
    const store = new MemoryChallengeStore(clock);
    const pool = poolOn(store);
    for (const name of ['a', 'b', 'c']) {
      time.now += 50_000;
      await store.replace('k', undefined, { ...held(name), ageMs: 40_000 }, LONG_MS);
      await pool.adopt();
      const nonce = pool.reserve() as Nonce;
      expect(nonce.challenge.nonce).toBe(name);
      pool.refuse(attemptWith(pool, nonce));
      await turns();
      expect([pool.known, await store.load('k')]).toEqual([undefined, undefined]);
    }
    await store.replace('k', undefined, { ...held('d'), ageMs: 0 }, LONG_MS);
    await pool.adopt();
    expect(pool.known).toBe(undefined);
    time.now += 5 * 60_000;
    await pool.adopt();
    expect(pool.reserve()?.challenge.nonce).toBe('d');
  });

  test('as stale do not keep others from being taken', async () => {
    const store = new MemoryChallengeStore(clock);
    const pool = poolOn(store);
    for (const name of ['a', 'b', 'c', 'd', 'e']) {
      time.now += 1_000;
      await store.replace('k', undefined, { ...held(name), ageMs: 0 }, LONG_MS);
      await pool.adopt();
      const nonce = pool.reserve() as Nonce;
      expect(nonce?.challenge.nonce).toBe(name);
      pool.refuse(attemptWith(pool, nonce), true);
      await turns();
    }
  });

  test('stay in the store if they were accepted here before', async () => {
    const store = new MemoryChallengeStore(clock);
    const pool = poolOn(store);
    await store.replace('k', undefined, { ...held('n'), ageMs: 0 }, LONG_MS);
    await pool.adopt();
    const nonce = pool.reserve() as Nonce;
    pool.accept(attemptWith(pool, nonce), undefined, undefined);
    pool.refuse(attemptWith(pool, nonce));
    await turns();
    expect((await store.load('k'))?.challenge.nonce).toBe('n');
  });
});

describe('a pool that has ended', () => {
  test('gives no nonce, and lets each request obtain its own', async () => {
    const pool = poolOn(new MemoryChallengeStore(clock));
    const waiting = [pool.enter(new Cancellation())];
    await turns();
    waiting.push(pool.enter(new Cancellation()));
    await pool.handOver();
    for (const entry of await Promise.all(waiting)) expect(entry).toBeInstanceOf(PendingChallenge);
    const late = [pool.enter(new Cancellation()), pool.enter(new Cancellation())];
    for (const entry of await Promise.all(late)) expect(entry).toBeInstanceOf(PendingChallenge);
    expect(pool.reserve()).toBe(undefined);
  });

  test('leaves a nonce that it obtained since, and none that was followed by another', async () => {
    const store = new MemoryChallengeStore(clock);
    const pool = poolOn(store);
    await pool.handOver();
    obtain(pool, counted('a'), 'b');
    await turns();
    expect(await store.take('k')).toBe(undefined);
    obtain(pool, counted('c'));
    await turns();
    expect([(await store.take('k'))?.challenge.nonce, pool.known]).toEqual(['c', undefined]);
  });

  test('takes nothing over any more', async () => {
    const store = new MemoryChallengeStore(clock);
    const pool = poolOn(store);
    await pool.handOver();
    await store.replace('k', undefined, { ...held('n'), ageMs: 0 }, LONG_MS);
    await pool.adopt();
    expect([pool.known, pool.reserve()]).toEqual([undefined, undefined]);
    const pending = pool.open();
    pool.offer(pending, held('m'));
    pool.acceptUntried(pending);
    expect(pool.known).toBe(undefined);
  });

  test('gives no nonce that it was about to take over', async () => {
    const store = new MemoryChallengeStore(clock);
    await store.replace('k', undefined, { ...held('n'), ageMs: 0 }, LONG_MS);
    const pool = poolOn(store);
    const restored = pool.restore();
    await pool.handOver();
    await restored;
    expect(pool.reserve()).toBe(undefined);
  });

  test('leaves a nonce that is refused or retired to nobody', async () => {
    const store = new MemoryChallengeStore(clock);
    const pool = poolOn(store, { policy: 'exclusive' });
    obtain(pool, counted('a')).retire();
    obtain(pool, held('without a count'));
    await pool.handOver();
    await turns();
    expect(await store.take('k')).toBe(undefined);
  });
});

describe('idle nonces', () => {
  test('are dropped once the credential is found good after two of them were refused', () => {
    const pool = poolOn(new MemoryChallengeStore(clock), { policy: 'exclusive' });
    const [left, first, second] = ['left', '1', '2'].map((name) => obtain(pool, counted(name)));
    expect(pool.reserve()).toBe(second);
    pool.refuse(attemptWith(pool, second as Nonce));
    pool.dropIdle();
    expect([pool.reserve(), left?.retired]).toEqual([first, false]);
    pool.refuse(attemptWith(pool, first as Nonce));
    pool.dropIdle();
    expect([pool.reserve(), left?.retired]).toEqual([undefined, true]);
  });

  test('stay if one was used again in between', () => {
    const pool = poolOn(new MemoryChallengeStore(clock), { policy: 'exclusive' });
    const [left, first, second, third] = ['left', '1', '2', '3'].map((name) => obtain(pool, counted(name)));
    pool.refuse(attemptWith(pool, third as Nonce));
    pool.accept(attemptWith(pool, second as Nonce), undefined, undefined);
    pool.refuse(attemptWith(pool, first as Nonce));
    pool.dropIdle();
    expect(left?.retired).toBe(false);
  });

  test('that are left from a stricter policy serve all with the policy shared', async () => {
    const store = new MemoryChallengeStore(clock);
    await store.learn('k', { ...facts, policy: 'exclusive', counted: true });
    const pool = poolOn(store);
    await pool.restore();
    const nonce = obtain(pool, counted('n'));
    await store.learn('k', { ...facts, counted: true });
    await pool.adopt();
    expect([pool.policy, pool.reserve(), pool.reserve(), pool.known]).toEqual([
      'shared',
      nonce,
      nonce,
      nonce,
    ]);
  });
});

describe('with a stricter policy', () => {
  test('the nonce in use is given up, and who waits obtains a nonce of its own', async () => {
    const steps: string[] = [];
    const store = new MemoryChallengeStore(clock);
    const pool = poolOn(store, { onStep: (to) => steps.push(to) });
    await store.learn('k', { ...facts, counted: true });
    const nonce = obtain(pool, counted('n'));
    const [first, second] = [pool.begin(nonce), pool.begin(nonce)];
    pool.accept(second as never, undefined, undefined);
    pool.refuse(first as never, true);
    expect([pool.policy, pool.known, nonce.retired, steps]).toEqual([
      'exclusive',
      undefined,
      true,
      ['exclusive'],
    ]);
  });

  test('that others learned, it is given up as well', async () => {
    const store = new MemoryChallengeStore(clock);
    const pool = poolOn(store);
    const nonce = obtain(pool, held('n'));
    await turns();
    await store.learn('k', { ...facts, policy: 'single-use' });
    await pool.adopt();
    expect([pool.policy, pool.known, nonce.retired]).toEqual(['single-use', undefined, true]);
  });
});

test('a nonce whose response was lost is used no more if it has a count or served nobody yet', () => {
  const pool = poolOn(new MemoryChallengeStore(clock));
  const shareable = obtain(pool, held('n'));
  pool.abandon(attemptWith(pool, shareable));
  expect([pool.known, shareable.retired]).toEqual([shareable, false]);
  const withCount = obtain(poolOn(new MemoryChallengeStore(clock)), counted('n'));
  pool.abandon(attemptWith(pool, withCount));
  expect([pool.known, withCount.retired]).toEqual([shareable, true]);
  const pending = pool.open(shareable);
  const unused = pool.offer(pending, held('m'));
  pool.abandon(attemptWith(pool, unused));
  expect([pool.known, unused.retired]).toEqual([shareable, true]);
});

test('the nonce in use is no more used once its counts are', () => {
  const pool = poolOn(new MemoryChallengeStore(clock));
  const nonce = obtain(pool, counted('n'));
  nonce.retire();
  nonce.handOver(0);
  expect([nonce.exhausted, pool.reserve(), pool.known]).toEqual([true, undefined, undefined]);
});
