import { expect, test } from '@jest/globals';
import { MemoryChallengeStore } from '../../src/challenges/store/memory.ts';
import { PARKED_AT_MOST } from '../../src/challenges/store/store.ts';
import { aged, learned, parked } from '../support/challenges.ts';

const LONG_MS = 600_000;
const KEYS = 65_536;
/** Time stands still. */
const clock = { now: () => 0 };

test('keeps a bounded number of nonces for each key, the youngest', async () => {
  const store = new MemoryChallengeStore(clock);
  for (let at = 0; at <= PARKED_AT_MOST; at += 1) await store.park('k', parked(`${at}`, at, at), LONG_MS);
  const counts: number[] = [];
  for (let next = await store.take('k'); next !== undefined; next = await store.take('k'))
    counts.push(next.count);
  expect(counts).toEqual(Array.from({ length: PARKED_AT_MOST }, (_, at) => at));
});

test('keeps a bounded number of keys, those that were written last', async () => {
  const store = new MemoryChallengeStore(clock);
  const other = store.join();
  const [shared, left] = [aged('n'), parked('n', 1)];
  for (let at = 0; at <= KEYS; at += 1) {
    const key = `${at}`;
    await store.replace(key, undefined, shared, LONG_MS);
    await store.park(key, left, LONG_MS);
    await store.learn(key, learned);
    await store.lead(key, LONG_MS);
    // The first one is written again, so that the second one is the oldest.
    if (at === 1) await store.learn('0', learned);
  }
  const holds = async (key: string): Promise<boolean[]> => [
    (await other.load(key)) !== undefined,
    (await other.take(key)) !== undefined,
    (await other.recall(key)) !== undefined,
    !(await other.lead(key, 1)),
  ];
  expect(await holds('1')).toEqual([true, true, false, true]);
  expect(await holds('0')).toEqual([false, false, true, false]);
  expect(await holds(`${KEYS}`)).toEqual([true, true, true, true]);
});

test('keeps nothing of a key whose challenges were all taken', async () => {
  const store = new MemoryChallengeStore(clock);
  const left = parked('n', 1);
  await store.park('first', left, LONG_MS);
  for (let at = 0; at < KEYS; at += 1) {
    await store.park(`${at}`, left, LONG_MS);
    await store.take(`${at}`);
  }
  expect(await store.take('first')).toEqual(left);
});
