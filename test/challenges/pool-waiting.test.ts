import { afterEach, beforeEach, expect, jest, test } from '@jest/globals';
import { Cancellation } from '../../src/base/cancellation.ts';
import { GatewayError } from '../../src/base/errors.ts';
import type { Nonce } from '../../src/challenges/nonce.ts';
import { PendingChallenge } from '../../src/challenges/pending-challenges.ts';
import { NoncePool } from '../../src/challenges/pool.ts';
import { SharedChallenges } from '../../src/challenges/shared-challenges.ts';
import { MemoryChallengeStore } from '../../src/challenges/store/memory.ts';
import type { ChallengeStore, NoncePolicy } from '../../src/challenges/store/store.ts';
import {
  aged,
  attemptWith,
  learned,
  obtain,
  parked,
  poolOptions,
  sharedFacts,
  shareElsewhere,
} from '../support/challenges.ts';

const ELSEWHERE_MS = 1_000;
const clock = { now: () => Date.now() };

beforeEach(() => {
  jest.useFakeTimers();
});

afterEach(() => {
  jest.useRealTimers();
});

/** Everything happens that needs no time to pass. */
const settle = (): Promise<void> => jest.advanceTimersByTimeAsync(0);

/** A process with a pool, which hears of the changes of the others. */
function processOn(store: ChallengeStore): NoncePool {
  const pool = new NoncePool(poolOptions({ clock }, store));
  store.onChange(() => void pool.adopt());
  return pool;
}

/** Lets requests enter the pool; returns the nonces and pending challenges that they get, in that order. */
function enter(pool: NoncePool, requests = 1): (Nonce | PendingChallenge)[] {
  const got: (Nonce | PendingChallenge)[] = [];
  for (let count = 0; count < requests; count += 1)
    void pool.enter(new Cancellation()).then((entry) => got.push(entry));
  return got;
}

/** The knowledge that processes share about an upstream with this policy. */
function sharedFactsOf(policy: NoncePolicy): SharedChallenges {
  const store = new MemoryChallengeStore(clock);
  void store.learn('k', { ...sharedFacts, policy });
  return new SharedChallenges({ key: 'k', store });
}

/** Two processes on one store; the first asks the upstream for a challenge. */
async function twoProcesses() {
  const place = new MemoryChallengeStore(clock);
  const [first, second] = [processOn(place.join()), processOn(place.join())];
  const got = enter(first);
  await settle();
  expect(got).toEqual([expect.any(PendingChallenge)]);
  return { place, first, second, pending: got[0] as PendingChallenge };
}

/** A store that takes this time to say which process leads. */
function slowToLead(store: ChallengeStore, ms: number): ChallengeStore {
  const lead = store.lead.bind(store);
  return Object.assign(store, {
    lead: async (key: string, leadMs: number) => {
      const isLeader = await lead(key, leadMs);
      await new Promise((resolve) => setTimeout(resolve, ms));
      return isLeader;
    },
  });
}

test('requests do not wait for the challenge of an upstream that asks for no authentication', async () => {
  const pool = processOn(new MemoryChallengeStore(clock));
  const got = enter(pool, 3);
  await settle();
  expect(got).toHaveLength(1);
  pool.unchallenged(got[0] as PendingChallenge);
  await settle();
  expect(got.map((entry) => entry instanceof PendingChallenge)).toEqual([true, true, true]);
  expect(new Set(got).size).toBe(3);
});

test('requests do not wait any more once nonces serve one request at a time', async () => {
  const pool = processOn(new MemoryChallengeStore(clock));
  const nonce = obtain(pool, parked('n', 0));
  const [lower, higher] = [attemptWith(pool, nonce), attemptWith(pool, nonce)];
  pool.refuse(lower);
  const got = enter(pool, 3);
  await settle();
  expect(got).toHaveLength(1);
  pool.accept(higher, undefined, undefined);
  expect(pool.policy).toBe('exclusive');
  await settle();
  expect(got.map((entry) => entry instanceof PendingChallenge)).toEqual([true, true, true]);
});

test('requests wait for one handshake, whatever becomes of others', async () => {
  const pool = processOn(new MemoryChallengeStore(clock));
  const got = enter(pool, 2);
  const other = pool.open();
  await settle();
  pool.unchallenged(other);
  pool.close(other);
  await settle();
  expect(got).toHaveLength(1);
  pool.close(got[0] as PendingChallenge);
  await settle();
  expect(got).toHaveLength(2);
});

test('a request that is given up does not wait, and one that got a nonce leaves no timer', async () => {
  const pool = processOn(new MemoryChallengeStore(clock));
  const pending = (await pool.enter(new Cancellation())) as PendingChallenge;
  const cancellation = new Cancellation();
  const givenUp = pool.enter(cancellation);
  const waiting = pool.enter(new Cancellation());
  cancellation.cancel(new GatewayError('client-closed', 'gone'));
  expect(await givenUp).toBeInstanceOf(PendingChallenge);
  const nonce = pool.offer(pending, aged('n'));
  pool.accept(attemptWith(pool, nonce), pending, undefined);
  expect([await waiting, jest.getTimerCount()]).toEqual([nonce, 0]);
});

test('requests get a nonce of a handshake that no request has tried', async () => {
  const pool = processOn(new MemoryChallengeStore(clock));
  const got = enter(pool, 3);
  await settle();
  const pending = got[0] as PendingChallenge;
  const nonce = pool.offer(pending, aged('n'));
  pool.acceptUntried(pending);
  await settle();
  expect([pool.known, ...got]).toEqual([nonce, pending, nonce, nonce]);
});

test('a handshake that brought no nonce gives none', () => {
  const pool = processOn(new MemoryChallengeStore(clock));
  pool.acceptUntried(pool.open());
  expect(pool.known).toBe(undefined);
});

test('requests do not wait for a handshake that began when nonces served one request at a time', async () => {
  const place = new MemoryChallengeStore(clock);
  const facts = { ...sharedFacts, counted: true };
  await place.learn('k', { ...facts, policy: 'exclusive' });
  const pool = processOn(place.join());
  await pool.restore();
  pool.open();
  await place.learn('k', facts);
  await settle();
  const got = enter(pool);
  await settle();
  expect([pool.policy, got]).toEqual(['shared', [expect.any(PendingChallenge)]]);
});

test('requests do not wait for each other once the store, asked late, says that each needs its own nonce', async () => {
  const store = new MemoryChallengeStore(clock);
  await store.learn('k', { ...sharedFacts, counted: true, policy: 'exclusive' });
  const pool = processOn(store);
  const got = enter(pool, 3);
  await settle();
  expect(got).toHaveLength(1);
  pool.offer(got[0] as PendingChallenge, parked('n', 0));
  await settle();
  expect([pool.policy, ...got.map((entry) => entry instanceof PendingChallenge)]).toEqual([
    'exclusive',
    true,
    true,
    true,
  ]);
});

test('requests do not wait for each other once the pool of another credential says that each needs its own nonce', async () => {
  const former = new NoncePool(poolOptions({ clock, sharedChallenges: sharedFactsOf('exclusive') }));
  await former.restore();
  const pool = processOn(new MemoryChallengeStore(clock));
  const got = enter(pool, 3);
  await settle();
  expect(got).toHaveLength(1);
  void pool.restore(former);
  await settle();
  expect(got.map((entry) => entry instanceof PendingChallenge)).toEqual([true, true, true]);
});

test('a process does not wait for another one where nonces serve one request at a time', async () => {
  const { place } = await twoProcesses();
  const pool = new NoncePool(poolOptions({ clock, policy: 'exclusive' }, place.join()));
  const got = enter(pool, 2);
  await settle();
  expect(got.map((entry) => entry instanceof PendingChallenge)).toEqual([true, true]);
});

test('a process waits a second for the challenge of another one', async () => {
  const { second } = await twoProcesses();
  const got = enter(second);
  await jest.advanceTimersByTimeAsync(ELSEWHERE_MS - 1);
  expect(got).toEqual([]);
  await jest.advanceTimersByTimeAsync(1);
  expect(got).toEqual([expect.any(PendingChallenge)]);
});

test('the second includes the time that the store takes to reply', async () => {
  const { place } = await twoProcesses();
  const got = enter(processOn(slowToLead(place.join(), 600)));
  await jest.advanceTimersByTimeAsync(ELSEWHERE_MS - 1);
  expect(got).toEqual([]);
  await jest.advanceTimersByTimeAsync(1);
  expect(got).toEqual([expect.any(PendingChallenge)]);
});

test('a process does not wait for another one whose nonces it cannot use', async () => {
  const { first, second, pending } = await twoProcesses();
  const got = enter(second);
  await settle();
  expect(got).toEqual([]);
  first.offer(pending, parked('counted', 0));
  await settle();
  expect(got).toEqual([expect.any(PendingChallenge)]);
  second.close(got[0] as PendingChallenge);
  const later = enter(second);
  await settle();
  expect(later).toEqual([expect.any(PendingChallenge)]);
});

test('a process waits on when others learn what does not keep their nonces from it', async () => {
  const { place, first, second, pending } = await twoProcesses();
  const got = enter(second);
  await settle();
  const { realm } = aged('n').challenge;
  await place.join().learn('k', { ...learned, realm, policy: 'shared', counted: false, portable: true });
  await settle();
  expect([second.lifetimeMs, got]).toEqual([learned.lifetimeMs, []]);
  const nonce = first.offer(pending, aged('n'));
  first.accept(attemptWith(first, nonce), pending, undefined);
  await settle();
  expect(got.map((entry) => 'challenge' in entry && entry.challenge.nonce)).toEqual(['n']);
});

test.each([
  ['leads', true],
  ['does not lead', false],
])('a nonce that comes while the store is asked is used by a process that %s', async (_, leads) => {
  const place = new MemoryChallengeStore(clock);
  if (!leads) await place.join().lead('k', ELSEWHERE_MS);
  const got = enter(processOn(slowToLead(place.join(), 100)));
  await jest.advanceTimersByTimeAsync(50);
  await shareElsewhere(place.join(), 'n');
  await jest.advanceTimersByTimeAsync(50);
  expect(got.map((entry) => 'challenge' in entry && entry.challenge.nonce)).toEqual(['n']);
});

test('requests do not wait for another process once their pool has ended', async () => {
  const { second } = await twoProcesses();
  const got = enter(second);
  await settle();
  expect(got).toEqual([]);
  await second.handOver();
  await settle();
  expect(got).toEqual([expect.any(PendingChallenge)]);
  const later = enter(second, 2);
  await settle();
  expect(later).toEqual([expect.any(PendingChallenge), expect.any(PendingChallenge)]);
});

test('a request does not wait for the renewal of a nonce that was refused meanwhile', async () => {
  const pool = processOn(new MemoryChallengeStore(clock));
  const nonce = obtain(pool, aged('n'));
  pool.open(nonce);
  pool.refuse(attemptWith(pool, nonce));
  const got = enter(pool);
  await settle();
  expect(got).toEqual([expect.any(PendingChallenge)]);
});
