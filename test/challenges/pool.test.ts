import { describe, expect, test } from '@jest/globals';
import { Cancellation } from '../../src/base/cancellation.ts';
import { Secret } from '../../src/base/secret.ts';
import { Nonce, NonceCounters } from '../../src/challenges/nonce.ts';
import { PendingChallenge } from '../../src/challenges/pending-challenges.ts';
import { NoncePool } from '../../src/challenges/pool.ts';
import { MemoryChallengeStore } from '../../src/challenges/store/memory.ts';
import type { ChallengeStore, HeldChallenge } from '../../src/challenges/store/store.ts';
import { parseChallenges } from '../../src/digest/challenge.ts';
import { attemptWith, obtain, poolOptions } from '../support/challenges.ts';

const credential = { username: 'u', password: new Secret('p') };

function held(nonce: string, qop = ''): HeldChallenge {
  const [challenge] = parseChallenges([`Digest realm="r", nonce="${nonce}"${qop && `, qop="${qop}"`}`]);
  if (challenge === undefined) throw new Error('no challenge');
  return { challenge, cookies: [] };
}

function poolOn(store: ChallengeStore = new MemoryChallengeStore(), counters?: NonceCounters): NoncePool {
  let count = 0;
  const newCnonce = (): string => {
    count += 1;
    return `c${count}`;
  };
  return new NoncePool(poolOptions({ ...(counters !== undefined && { counters }), newCnonce }, store));
}

const never = (): Cancellation => new Cancellation();

test('of nonces for one request at a time, some are kept: uploads give one each, and take none', async () => {
  const store = new MemoryChallengeStore();
  let left = 0;
  store.park = async () => {
    left += 1;
  };
  const pool = new NoncePool(poolOptions({ policy: 'exclusive' }, store));
  for (let count = 0; count < 1_000; count += 1) {
    const pending = pool.open();
    pool.accept(attemptWith(pool, pool.offer(pending, held(`n${count}`, 'auth'))), pending, undefined);
  }
  expect(pool.reserve()?.challenge.nonce).toBe('n999');
  await pool.handOver();
  expect(left).toBe(255);
});

describe('one handshake at a time', () => {
  test('the first who comes opens, the others get its nonce once it is accepted', async () => {
    const pool = poolOn();
    const pending = await pool.enter(never());
    expect(pending).toBeInstanceOf(PendingChallenge);
    const waiting = [pool.enter(never()), pool.enter(never())];
    const nonce = pool.offer(pending as PendingChallenge, held('n', 'auth'));
    expect(pool.reserve()).toBeUndefined();
    pool.accept(attemptWith(pool, nonce), pending as PendingChallenge, undefined);
    expect(await Promise.all(waiting)).toEqual([nonce, nonce]);
    expect(pool.reserve()).toBe(nonce);
  });

  test('a handshake that fails goes to the next who waits, and to nobody else', async () => {
    const pool = poolOn();
    const first = (await pool.enter(never())) as PendingChallenge;
    const second = pool.enter(never());
    const third = pool.enter(never());
    pool.close(first);
    const pending = (await second) as PendingChallenge;
    expect(pending).toBeInstanceOf(PendingChallenge);
    const nonce = pool.offer(pending, held('n'));
    pool.accept(attemptWith(pool, nonce), pending, undefined);
    expect(await third).toBe(nonce);
  });

  test('an upstream that asks for nothing lets everyone go', async () => {
    const pool = poolOn();
    const first = (await pool.enter(never())) as PendingChallenge;
    const waiting = [pool.enter(never()), pool.enter(never())];
    pool.unchallenged(first);
    for (const entry of await Promise.all(waiting)) expect(entry).toBeInstanceOf(PendingChallenge);
  });
});

describe('a nonce', () => {
  test('that the upstream gives to two versions of a credential has one count', () => {
    const counters = new NonceCounters();
    const [one, other] = [poolOn(undefined, counters), poolOn(undefined, counters)];
    const first = one.offer(one.open(), held('n', 'auth'));
    const second = other.offer(other.open(), held('n', 'auth'));
    expect([first, second, first].map((nonce) => nonce.begin(0)?.nc)).toEqual([1, 2, 3]);
  });

  test('gives each nc once, from 1', () => {
    const nonce = new Nonce(held('n', 'auth'), credential, { cnonce: 'c', obtainedAt: 0 });
    expect([1, 2, 3].map(() => nonce.begin(0)?.nc)).toEqual([1, 2, 3]);
  });

  test('gives no nc to anybody once it is retired, and is handed over when nobody uses it', () => {
    const nonce = new Nonce(held('n', 'auth'), credential, { cnonce: 'c', obtainedAt: 0 });
    const attempt = nonce.begin(0);
    expect(() => nonce.handOver(0)).toThrow(TypeError);
    nonce.retire();
    expect(nonce.begin(0)).toBeUndefined();
    expect(() => nonce.handOver(0)).toThrow(TypeError);
    let unused = 0;
    nonce.whenUnused(() => {
      unused += 1;
    });
    expect(unused).toBe(0);
    attempt?.nonce.endAttempt();
    expect([unused, nonce.handOver(0).count]).toEqual([1, 1]);
  });

  test('that is refused late does not evict a newer one', () => {
    const pool = poolOn();
    const old = obtain(pool, held('old'));
    const [early, late] = [attemptWith(pool, old), attemptWith(pool, old)];
    pool.refuse(early);
    const newer = obtain(pool, held('newer'));
    pool.refuse(late);
    expect(pool.reserve()).toBe(newer);
  });

  test('is followed by nextnonce with a count and a cnonce of its own', () => {
    const pool = poolOn();
    const first = obtain(pool, held('first', 'auth'));
    const late = attemptWith(pool, first);
    pool.accept(attemptWith(pool, first), undefined, 'second');
    const second = pool.reserve();
    expect([second?.challenge.nonce, second?.begin(0)?.nc]).toEqual(['second', 1]);
    expect(second?.cnonce).not.toBe(first.cnonce);
    pool.accept(late, undefined, 'third');
    expect(pool.reserve()).toBe(second);
  });
});

describe('the store', () => {
  test('gives everybody a nonce without qop', async () => {
    const store = new MemoryChallengeStore();
    obtain(poolOn(store), held('shared'));
    const other = poolOn(store);
    await other.restore();
    expect(other.reserve()?.challenge.nonce).toBe('shared');
  });

  test('gives a nonce with qop to one process only, after its owner has left it, and the count goes on', async () => {
    const store = new MemoryChallengeStore();
    const owner = poolOn(store);
    const nonce = obtain(owner, held('counted', 'auth'));
    attemptWith(owner, nonce);
    const early = poolOn(store);
    await early.restore();
    expect(early.reserve()).toBeUndefined();
    await owner.handOver();
    expect(owner.reserve()).toBeUndefined();
    const heirs = [poolOn(store), poolOn(store)];
    for (const heir of heirs) await heir.restore();
    const [first, second] = heirs.map((heir) => heir.reserve());
    expect([first?.challenge.nonce, first?.cnonce, first?.begin(0)?.nc]).toEqual([
      'counted',
      nonce.cnonce,
      3,
    ]);
    expect(second).toBeUndefined();
  });

  test('lets a process adopt a newer nonce, and not an older one', async () => {
    const store = new MemoryChallengeStore();
    const pool = poolOn(store);
    await store.replace('k', undefined, { ...held('old'), ageMs: 500 }, 10_000);
    await pool.adopt();
    expect(pool.reserve()?.challenge.nonce).toBe('old');
    await store.replace('k', 'old', { ...held('newer'), ageMs: 100 }, 10_000);
    await pool.adopt();
    expect(pool.reserve()?.challenge.nonce).toBe('newer');
    await store.replace('k', 'newer', { ...held('older'), ageMs: 900 }, 10_000);
    await pool.adopt();
    expect(pool.reserve()?.challenge.nonce).toBe('newer');
  });

  test('gets the nonce in use back after it lost everything', async () => {
    let store: ChallengeStore = new MemoryChallengeStore();
    const through: ChallengeStore = {
      load: (...args) => store.load(...args),
      replace: (...args) => store.replace(...args),
      discard: (...args) => store.discard(...args),
      park: (...args) => store.park(...args),
      take: (...args) => store.take(...args),
      recall: (...args) => store.recall(...args),
      learn: (...args) => store.learn(...args),
      noteAccepted: (...args) => store.noteAccepted(...args),
      acceptedAgo: (...args) => store.acceptedAgo(...args),
      lead: (...args) => store.lead(...args),
      onChange: (listener) => store.onChange(listener),
      release: (key) => store.release(key),
      close: () => store.close(),
    };
    const pool = poolOn(through);
    obtain(pool, held('shared'));
    store = new MemoryChallengeStore();
    await pool.adopt();
    expect((await store.load('k'))?.challenge.nonce).toBe('shared');
  });

  test('that fails at every call changes nothing', async () => {
    let calls = 0;
    const fails = () => {
      calls += 1;
      return Promise.reject(new Error('gone'));
    };
    const broken: ChallengeStore = {
      load: fails,
      replace: fails,
      discard: fails,
      park: fails,
      take: fails,
      recall: fails,
      learn: fails,
      noteAccepted: fails,
      acceptedAgo: fails,
      lead: fails,
      onChange: () => {},
      release: () => {},
      close: () => Promise.resolve(),
    };
    const pool = poolOn(broken);
    await pool.restore();
    const nonce = obtain(pool, held('n', 'auth'));
    expect(pool.reserve()).toBe(nonce);
    await pool.handOver();
    expect(calls).toBe(6);
  });
});
