import { describe, expect, test } from '@jest/globals';
import { SharedChallenges } from '../../src/challenges/shared-challenges.ts';
import { MemoryChallengeStore } from '../../src/challenges/store/memory.ts';
import { unreliableStore } from '../contracts/unreliable-store.ts';
import { aged, learned, parked, recalled } from '../support/challenges.ts';

const RELIABLE = { refuse: 0, loseAnswer: 0, loseState: 0, loseChange: 0, dawdle: 0 };

/** Two processes with one store, whose clock the test moves. */
function twoProcesses() {
  const time = { now: 0 };
  const store = new MemoryChallengeStore({ now: () => time.now });
  const [one, other] = [store, store.join()].map(
    (each) => new SharedChallenges({ key: 'k', store: each }),
  ) as [SharedChallenges, SharedChallenges];
  return { time, store, one, other };
}

describe('a challenge that is shared', () => {
  test('is loaded by the others, until it is discarded', async () => {
    const { one, other } = twoProcesses();
    expect(await one.load()).toBeUndefined();
    expect(await one.share(aged('1'))).toBeUndefined();
    expect(await other.load()).toEqual(aged('1'));
    await other.discard(aged('2'));
    expect(await one.load()).toEqual(aged('1'));
    await other.discard(aged('1'));
    expect(await one.load()).toBeUndefined();
  });

  test('takes the place of the one that this process shared', async () => {
    const { one, other } = twoProcesses();
    await one.share(aged('1'));
    expect(await one.share(aged('2'))).toBeUndefined();
    expect(await other.load()).toEqual(aged('2'));
  });

  test('takes the place of the one that this process loaded', async () => {
    const { one, other } = twoProcesses();
    await one.share(aged('1'));
    await other.load();
    expect(await other.share(aged('2'))).toBeUndefined();
    expect(await one.load()).toEqual(aged('2'));
  });

  test('gives way to one of a quicker process, which the next one replaces', async () => {
    const { one, other } = twoProcesses();
    await one.share(aged('1'));
    expect(await other.share(aged('2'))).toEqual(aged('1'));
    expect(await other.share(aged('3'))).toBeUndefined();
    expect(await one.load()).toEqual(aged('3'));
  });

  test('takes the place of the one that was seen last if a load finds nothing', async () => {
    const { one, other, store } = twoProcesses();
    await one.share(aged('1'));
    await store.discard('k', '1');
    await other.load();
    expect(await other.share(aged('2'))).toBeUndefined();
    expect(await one.share(aged('3'))).toEqual(aged('2'));
  });

  test.each([
    ['for its lifetime', 1_000, 1_000],
    ['for 15 minutes if nobody knows its lifetime', undefined, 15 * 60_000],
  ])('is kept %s', async (_, lifetimeMs, keptMs) => {
    const { time, one, other } = twoProcesses();
    await one.share(aged('1', 1), lifetimeMs);
    time.now = keptMs - 2;
    expect(await other.load()).toEqual(aged('1', keptMs - 1));
    time.now = keptMs - 1;
    expect(await other.load()).toBeUndefined();
  });
});

describe('a challenge that is left for another process', () => {
  test('is taken once', async () => {
    const { one, other } = twoProcesses();
    await one.park(parked('n', 3));
    expect(await other.take()).toEqual(parked('n', 3));
    expect(await one.take()).toBeUndefined();
  });

  test.each([
    ['for its lifetime', 1_000, 1_000],
    ['for 15 minutes if nobody knows its lifetime', undefined, 15 * 60_000],
  ])('is kept %s', async (_, lifetimeMs, keptMs) => {
    const { time, one, other } = twoProcesses();
    for (const nonce of ['1', '2']) await one.park(parked(nonce, 1), lifetimeMs);
    time.now = keptMs - 1;
    expect(await other.take()).toBeDefined();
    time.now = keptMs;
    expect(await other.take()).toBeUndefined();
  });
});

test('one process renews at a time, not always the same one, for each key on its own', async () => {
  const { time, store, one, other } = twoProcesses();
  expect([await one.lead(100), await other.lead(100)]).toEqual([true, false]);
  const ofAnotherKey = new SharedChallenges({ key: 'l', store: store.join() });
  expect(await ofAnotherKey.lead(100)).toBe(true);
  time.now = 100;
  expect([await other.lead(1), await one.lead(1)]).toEqual([true, false]);
});

test('that nothing was learned is told apart from a store that fails', async () => {
  const { one, other } = twoProcesses();
  expect(await one.recall()).toEqual({ learned: undefined });
  expect(await one.learn(learned)).toBe(true);
  expect(await other.recall()).toEqual({ learned });
});

test('without the store, every process goes on with its own state, and every one leads', async () => {
  const memory = new MemoryChallengeStore();
  const own = new SharedChallenges({
    key: 'k',
    store: unreliableStore(memory, 1, { ...RELIABLE, refuse: 1 }),
  });
  expect(await own.load()).toBeUndefined();
  expect(await own.share(aged('1'))).toBeUndefined();
  expect(await own.discard(aged('1'))).toBeUndefined();
  expect(await own.park(parked('n', 1))).toBeUndefined();
  expect(await own.take()).toBeUndefined();
  expect(await own.recall()).toBeUndefined();
  expect(await own.learn(learned)).toBe(false);
  expect(await own.lead(1)).toBe(true);
});

test('a store that rejects what it has done counts as one that has not', async () => {
  const memory = new MemoryChallengeStore();
  const lossy = unreliableStore(memory, 1, { ...RELIABLE, loseAnswer: 1 });
  const own = new SharedChallenges({ key: 'k', store: lossy });
  expect(await own.learn(learned)).toBe(false);
  expect(await memory.recall('k')).toEqual(recalled);
});
