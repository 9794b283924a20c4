import { expect, test } from '@jest/globals';
import { MemoryChallengeStore } from '../../src/challenges/store/memory.ts';
import { aged } from '../support/challenges.ts';
import { keepsTheContract } from './challenge-store.ts';
import { type Misfortunes, unreliableStore } from './unreliable-store.ts';

const NONE = { refuse: 0, loseAnswer: 0, loseState: 0, loseChange: 0 };

keepsTheContract('dawdling', async () => {
  const store = new MemoryChallengeStore();
  return {
    open: async () => unreliableStore(store.join(), 1, { ...NONE, dawdle: 1, delayMs: 2 }),
    close: () => store.close(),
  };
});

/** Faults that a hundred calls, one after the other, met with. */
async function history(seed: number, misfortunes: Misfortunes): Promise<string[]> {
  const memory = new MemoryChallengeStore();
  const store = unreliableStore(memory, seed, { delayMs: 0, ...misfortunes });
  const results: string[] = [];
  for (let call = 0; call < 100; call += 1) {
    await store.replace('k', undefined, aged('1'), 60_000).catch(() => undefined);
    const result = await store.load('k').catch(String);
    results.push(typeof result === 'string' ? result : (result?.challenge.nonce ?? 'nothing'));
  }
  return results;
}

test('what goes wrong follows from the seed', async () => {
  const met = await history(7, {});
  expect(await history(7, {})).toEqual(met);
  expect(await history(8, {})).not.toEqual(met);
  expect(new Set(met)).toEqual(
    new Set([
      '1',
      'nothing',
      'Error: load: the store did nothing',
      "Error: load: the store's answer was lost",
    ]),
  );
});

test('a call whose answer is lost has happened', async () => {
  const memory = new MemoryChallengeStore();
  const store = unreliableStore(memory, 1, { ...NONE, loseAnswer: 1 });
  await expect(store.replace('k', undefined, aged('1'), 60_000)).rejects.toThrow('answer was lost');
  expect((await memory.load('k'))?.challenge.nonce).toBe('1');
});
