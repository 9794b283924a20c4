import { describe, expect, test } from '@jest/globals';
import { Cancellation } from '../../src/base/cancellation.ts';
import { GatewayError } from '../../src/base/errors.ts';
import { Secret } from '../../src/base/secret.ts';
import { MemoryChallengeStore } from '../../src/challenges/memory.ts';
import { Nonce } from '../../src/challenges/nonce.ts';
import { NoncePool, Opening } from '../../src/challenges/pool.ts';
import type { ChallengeStore, HeldChallenge } from '../../src/challenges/store.ts';
import { parseChallenges } from '../../src/digest/challenge.ts';

const credential = { username: 'u', password: new Secret('p') };

function held(nonce: string, qop = ''): HeldChallenge {
  const [challenge] = parseChallenges([`Digest realm="r", nonce="${nonce}"${qop && `, qop="${qop}"`}`]);
  if (challenge === undefined) throw new Error('no challenge');
  return { challenge, cookies: [] };
}

function poolOn(store: ChallengeStore = new MemoryChallengeStore(), errors: unknown[] = []): NoncePool {
  let count = 0;
  const newCnonce = (): string => {
    count += 1;
    return `c${count}`;
  };
  return new NoncePool({
    key: 'k',
    store,
    credential,
    newCnonce,
    onStoreError: (error) => errors.push(error),
  });
}

const never = (): Cancellation => new Cancellation();

function accepted(pool: NoncePool, challenge: HeldChallenge): Nonce {
  const opening = pool.open();
  const nonce = pool.offer(opening, challenge);
  pool.accept(opening);
  pool.close(opening);
  return nonce;
}

describe('one handshake at a time', () => {
  test('the first who comes opens, the others get its nonce once it is accepted', async () => {
    const pool = poolOn();
    const opening = await pool.enter(never());
    expect(opening).toBeInstanceOf(Opening);
    const waiting = [pool.enter(never()), pool.enter(never())];
    const nonce = pool.offer(opening as Opening, held('n', 'auth'));
    expect(pool.reserve()).toBeUndefined();
    pool.accept(opening as Opening);
    expect(await Promise.all(waiting)).toEqual([nonce, nonce]);
    expect(pool.reserve()).toBe(nonce);
  });

  test('a handshake that fails goes to the next who waits, and to nobody else', async () => {
    const pool = poolOn();
    const first = (await pool.enter(never())) as Opening;
    const second = pool.enter(never());
    const third = pool.enter(never());
    pool.close(first);
    const opening = (await second) as Opening;
    expect(opening).toBeInstanceOf(Opening);
    const nonce = pool.offer(opening, held('n'));
    pool.accept(opening);
    expect(await third).toBe(nonce);
  });

  test('an upstream that asks for nothing lets everyone go', async () => {
    const pool = poolOn();
    const first = (await pool.enter(never())) as Opening;
    const waiting = [pool.enter(never()), pool.enter(never())];
    pool.unchallenged(first);
    for (const entry of await Promise.all(waiting)) expect(entry).toBeInstanceOf(Opening);
  });

  test('who aborts does not wait on', async () => {
    const pool = poolOn();
    await pool.enter(never());
    const cancellation = new Cancellation();
    const waiting = pool.enter(cancellation);
    cancellation.cancel(new GatewayError('client-closed', 'gone'));
    expect(await waiting).toBeInstanceOf(Opening);
  });
});

describe('a nonce', () => {
  test('gives each nc once, from 1', () => {
    const nonce = new Nonce(held('n', 'auth'), credential, 'c');
    expect([nonce.count(), nonce.count(), nonce.count()]).toEqual([1, 2, 3]);
  });

  test('that is refused late does not evict a newer one', () => {
    const pool = poolOn();
    const old = accepted(pool, held('old'));
    pool.refuse(old);
    const newer = accepted(pool, held('newer'));
    pool.refuse(old);
    expect(pool.reserve()).toBe(newer);
  });

  test('is followed by nextnonce with a count and a cnonce of its own', () => {
    const pool = poolOn();
    const first = accepted(pool, held('first', 'auth'));
    first.count();
    pool.succeed(first, 'second');
    const second = pool.reserve();
    expect([second?.challenge.nonce, second?.count()]).toEqual(['second', 1]);
    expect(second?.cnonce).not.toBe(first.cnonce);
    pool.succeed(first, 'third');
    expect(pool.reserve()).toBe(second);
  });
});

describe('the store', () => {
  test('holds nonces without qop for others, and none with qop', async () => {
    const store = new MemoryChallengeStore();
    accepted(poolOn(store), held('counted', 'auth'));
    expect(await store.load('k')).toBeUndefined();
    accepted(poolOn(store), held('shared'));
    const other = poolOn(store);
    await other.restore();
    expect(other.reserve()?.challenge.nonce).toBe('shared');
  });

  test('replaces only the nonce that was seen', async () => {
    const store = new MemoryChallengeStore();
    await store.replace('k', undefined, held('a'));
    expect((await store.replace('k', undefined, held('b'))).challenge.nonce).toBe('a');
    expect((await store.replace('k', 'a', held('b'))).challenge.nonce).toBe('b');
    expect((await store.load('k'))?.challenge.nonce).toBe('b');
  });

  test('that fails is told, and nothing else happens', async () => {
    const errors: unknown[] = [];
    const failure = new Error('gone');
    const broken: ChallengeStore = {
      load: () => Promise.reject(failure),
      replace: () => Promise.reject(failure),
    };
    const pool = poolOn(broken, errors);
    await pool.restore();
    const nonce = accepted(pool, held('n'));
    await Promise.resolve();
    await Promise.resolve();
    expect(errors).toEqual([failure, failure]);
    expect(pool.reserve()).toBe(nonce);
  });
});
