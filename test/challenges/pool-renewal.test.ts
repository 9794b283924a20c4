import { afterEach, beforeEach, expect, jest, test } from '@jest/globals';
import type { Nonce } from '../../src/challenges/nonce.ts';
import { NoncePool } from '../../src/challenges/pool.ts';
import { MemoryChallengeStore } from '../../src/challenges/store/memory.ts';
import type { Learned } from '../../src/challenges/store/store.ts';
import { aged, attemptWith, obtain, parked, poolOptions, sharedFacts } from '../support/challenges.ts';

const LIFE_MS = 10_000;
const clock = { now: () => Date.now() };
const facts: Learned = { ...sharedFacts, lifetimeMs: LIFE_MS };

beforeEach(() => {
  jest.useFakeTimers();
});

afterEach(() => {
  jest.useRealTimers();
});

/** Processes on one store, which know how long nonces live, and which renewals each began. */
async function processes(count: number, change: Partial<Learned> = {}) {
  const place = new MemoryChallengeStore(clock);
  await place.learn('k', { ...facts, ...change });
  const renewed: string[] = [];
  const pools: NoncePool[] = [];
  for (let index = 1; index <= count; index += 1) {
    const store = place.join();
    const renew = async (nonce: Nonce) => void renewed.push(`${index}: ${nonce.challenge.nonce}`);
    const pool = new NoncePool(poolOptions({ clock, renew }, store));
    store.onChange(() => void pool.adopt());
    await pool.restore();
    pools.push(pool);
  }
  return { place, renewed, pools: pools as [NoncePool, NoncePool] };
}

test('a nonce that processes share is renewed by one of them', async () => {
  const { renewed, pools } = await processes(2);
  obtain(pools[0], aged('n'));
  await jest.advanceTimersByTimeAsync(0);
  pools[1].accept(attemptWith(pools[1], pools[1].reserve() as Nonce), undefined, undefined);
  await jest.advanceTimersByTimeAsync(0.7 * LIFE_MS - 1);
  expect(renewed).toEqual([]);
  await jest.advanceTimersByTimeAsync(2);
  expect(renewed).toEqual(['1: n']);
});

test('nonces with a count are renewed by the process that has them', async () => {
  const { renewed, pools } = await processes(2, { counted: true });
  obtain(pools[0], parked('a', 0));
  obtain(pools[1], parked('b', 0));
  await jest.advanceTimersByTimeAsync(0.7 * LIFE_MS);
  expect(renewed).toEqual(['1: a', '2: b']);
});

test('the nonce that took the place of another one is renewed in its own time', async () => {
  const { renewed, pools } = await processes(1);
  const [pool] = pools;
  const old = obtain(pool, aged('old'));
  await jest.advanceTimersByTimeAsync(0.5 * LIFE_MS);
  const pending = pool.open(old);
  const nonce = pool.offer(pending, aged('newer'));
  pool.accept(attemptWith(pool, nonce), pending, undefined);
  pool.accept(attemptWith(pool, nonce), undefined, undefined);
  await jest.advanceTimersByTimeAsync(0.7 * LIFE_MS - 1);
  expect(renewed).toEqual([]);
  await jest.advanceTimersByTimeAsync(1);
  expect(renewed).toEqual(['1: newer']);
});

test.each<[string, (pool: NoncePool, nonce: Nonce, place: MemoryChallengeStore) => unknown]>([
  ['was refused', (pool, nonce) => pool.refuse(attemptWith(pool, nonce))],
  ['may have been sent with a response lost', (pool, nonce) => pool.abandon(attemptWith(pool, nonce))],
  ['was left to other processes', (pool) => pool.handOver()],
  [
    'may no more be shared by requests',
    (_, _nonce, place) => place.join().learn('k', { ...facts, counted: true, policy: 'exclusive' }),
  ],
])('a nonce that %s is not renewed', async (_, end) => {
  const { place, renewed, pools } = await processes(1, { counted: true });
  const nonce = obtain(pools[0], parked('n', 0));
  await end(pools[0], nonce, place);
  await jest.advanceTimersByTimeAsync(LIFE_MS);
  expect([pools[0].known, renewed, jest.getTimerCount()]).toEqual([undefined, [], 0]);
});

test('a nonce that only a renewal has used is not renewed', async () => {
  const { renewed, pools } = await processes(1);
  const [pool] = pools;
  const old = obtain(pool, aged('old'));
  await jest.advanceTimersByTimeAsync(0.5 * LIFE_MS);
  const pending = pool.open(old);
  pool.accept(attemptWith(pool, pool.offer(pending, aged('newer'))), pending, undefined);
  await jest.advanceTimersByTimeAsync(LIFE_MS);
  expect([pool.known?.challenge.nonce, renewed]).toEqual(['newer', []]);
});

test('a pool that renews nothing has no timer', async () => {
  const store = new MemoryChallengeStore(clock);
  await store.learn('k', facts);
  const pool = new NoncePool(poolOptions({ clock }, store));
  await pool.restore();
  obtain(pool, aged('n'));
  expect([pool.lifetimeMs, jest.getTimerCount()]).toEqual([LIFE_MS, 0]);
});
