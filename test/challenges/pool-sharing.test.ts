import { describe, expect, test } from '@jest/globals';
import { NoncePool } from '../../src/challenges/pool.ts';
import { MemoryChallengeStore } from '../../src/challenges/store/memory.ts';
import type { ChallengeStore } from '../../src/challenges/store/store.ts';
import {
  aged,
  attemptWith,
  obtain,
  parked,
  poolOptions,
  sharedFacts,
  shareElsewhere,
  turns,
} from '../support/challenges.ts';

function scene() {
  const time = { now: 1_000_000 };
  const clock = { now: () => time.now };
  const store = new MemoryChallengeStore(clock);
  const poolOn = (at: ChallengeStore): NoncePool => new NoncePool(poolOptions({ clock }, at));
  return { time, store, poolOn };
}

describe('a process that obtained a nonce after another one shared its own', () => {
  test('uses that of the other', async () => {
    const { store, poolOn } = scene();
    await shareElsewhere(store, 'quicker');
    const pool = poolOn(store);
    const own = obtain(pool, aged('own'));
    expect(pool.reserve()).toBe(own);
    await turns();
    expect(pool.reserve()?.challenge.nonce).toBe('quicker');
    expect((await store.load('k'))?.challenge.nonce).toBe('quicker');
  });

  test('keeps its own if nonces of other processes do not work, and shares none', async () => {
    const { time, store, poolOn } = scene();
    await store.learn('k', { ...sharedFacts, portable: false });
    const pool = poolOn(store);
    await pool.restore();
    const writes = replacesOf(store);
    await shareElsewhere(store, 'quicker');
    const own = obtain(pool, aged('own'));
    await turns();
    expect(pool.reserve()).toBe(own);
    time.now += 60_000;
    await pool.adopt();
    const next = obtainInPlace(pool, 'next');
    await turns();
    expect([pool.reserve(), writes]).toEqual([next, ['quicker']]);
  });

  test('keeps its own if it would not answer the other challenge', async () => {
    const { store, poolOn } = scene();
    const pool = poolOn(store);
    const { challenge } = aged('quicker');
    await store.replace(
      'k',
      undefined,
      { ...aged('quicker'), challenge: { ...challenge, realm: 'other' } },
      60_000,
    );
    const own = obtain(pool, aged('own'));
    await turns();
    expect([pool.reserve(), await store.load('k')]).toEqual([own, undefined]);
  });

  test('keeps a newer one that it obtained while the store was asked', async () => {
    const { store, poolOn } = scene();
    await shareElsewhere(store, 'quicker');
    const replies: (() => void)[] = [];
    const replace = store.replace.bind(store);
    const slow = Object.assign(store, {
      replace: async (...args: Parameters<ChallengeStore['replace']>) => {
        const held = await replace(...args);
        await new Promise<void>((resolve) => replies.push(resolve));
        return held;
      },
    });
    const pool = poolOn(slow);
    obtain(pool, aged('own'));
    const newer = obtainInPlace(pool, 'newer');
    await turns();
    expect(replies).toHaveLength(2);
    replies[0]?.();
    await turns();
    expect(pool.reserve()).toBe(newer);
  });
});

test('others learn how old a nonce is that this process shares', async () => {
  const { time, store, poolOn } = scene();
  const pool = poolOn(store);
  const pending = pool.open();
  const nonce = pool.offer(pending, aged('n'));
  time.now += 300;
  pool.accept(attemptWith(pool, nonce), pending, undefined);
  await turns();
  expect((await store.load('k'))?.ageMs).toBe(300);
});

test('a nonce is shared for as long as nonces live', async () => {
  const { time, store, poolOn } = scene();
  await store.learn('k', { ...sharedFacts, lifetimeMs: 20_000 });
  const pool = poolOn(store);
  await pool.restore();
  obtain(pool, aged('n'));
  await turns();
  time.now += 19_999;
  expect((await store.load('k'))?.challenge.nonce).toBe('n');
  time.now += 1;
  expect(await store.load('k')).toBe(undefined);
});

test('a nonce with a count is not shared while it is in use', async () => {
  const { store, poolOn } = scene();
  const pool = poolOn(store);
  obtain(pool, parked('n', 0));
  await turns();
  expect([await store.load('k'), await store.take('k')]).toEqual([undefined, undefined]);
});

test('a nonce is shared once, however many requests it serves', async () => {
  const { store, poolOn } = scene();
  const pool = poolOn(store);
  const writes = replacesOf(store);
  const nonce = obtain(pool, aged('n'));
  for (let count = 0; count < 3; count += 1) pool.accept(attemptWith(pool, nonce), undefined, undefined);
  await turns();
  expect(writes).toEqual(['n']);
});

describe('after a change of the store, a process', () => {
  test('keeps its nonce if the one there is as old', async () => {
    const { store, poolOn } = scene();
    const pool = poolOn(store);
    const own = obtain(pool, aged('own'));
    await turns();
    await shareElsewhere(store, 'other');
    await pool.adopt();
    expect(pool.reserve()).toBe(own);
  });

  test('writes nothing if the nonce there is the one that it uses', async () => {
    const { store, poolOn } = scene();
    const pool = poolOn(store);
    obtain(pool, aged('n'));
    await turns();
    const writes = replacesOf(store);
    await pool.adopt();
    await turns();
    expect(writes).toEqual([]);
  });

  test('shares its nonce if the one there is older', async () => {
    const { time, store, poolOn } = scene();
    await shareElsewhere(store, 'older');
    const pool = poolOn(store);
    await pool.restore();
    time.now += 10;
    const { replace } = store;
    Object.assign(store, { replace: () => Promise.reject(new Error('the connection broke')) });
    obtainInPlace(pool, 'own');
    await turns();
    Object.assign(store, { replace });
    expect((await store.load('k'))?.challenge.nonce).toBe('older');
    await pool.adopt();
    await turns();
    expect((await store.load('k'))?.challenge.nonce).toBe('own');
  });

  test('does not write its nonce over and over in turn with one that meets another realm', async () => {
    const { store: place, poolOn } = scene();
    const written: string[] = [];
    const pools = ['realm of one', 'realm of the other'].map((realm) => {
      const store = place.join();
      const replace = store.replace.bind(store);
      const bounded = (...args: Parameters<ChallengeStore['replace']>) => {
        written.push(realm);
        return written.length > 100 ? Promise.reject(new Error('without end')) : replace(...args);
      };
      const pool = poolOn(Object.assign(store, { replace: bounded }));
      store.onChange(() => void pool.adopt());
      const { challenge } = aged('n');
      return { pool, held: { ...aged(realm), challenge: { ...challenge, realm, nonce: realm } } };
    });
    const own = pools.map(({ pool, held }) => obtain(pool, held));
    await turns();
    expect(pools.map(({ pool }) => pool.reserve())).toEqual(own);
    expect(written.length).toBeLessThan(10);
  });

  test('does not share a nonce with a count', async () => {
    const { store, poolOn } = scene();
    const pool = poolOn(store);
    obtain(pool, parked('n', 0));
    await turns();
    await pool.adopt();
    await turns();
    expect(await store.load('k')).toBe(undefined);
  });
});

/** Nonces that are written to the store from now on for everybody to use. */
function replacesOf(store: ChallengeStore): string[] {
  const written: string[] = [];
  const replace = store.replace.bind(store);
  Object.assign(store, {
    replace: (...args: Parameters<ChallengeStore['replace']>) => {
      written.push(args[2].challenge.nonce);
      return replace(...args);
    },
  });
  return written;
}

/** The pool obtains a nonce in the place of the one in use. */
function obtainInPlace(pool: NoncePool, name: string) {
  const pending = pool.open(pool.known);
  const nonce = pool.offer(pending, aged(name));
  pool.accept(attemptWith(pool, nonce), pending, undefined);
  pool.close(pending);
  return nonce;
}
