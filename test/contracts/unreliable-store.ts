import { setTimeout as delay } from 'node:timers/promises';
import type { ChallengeStore } from '../../src/challenges/store/store.ts';

/** Faults with their probabilities, 0 to 1; 0.2 by default. */
export interface Misfortunes {
  /** The call does nothing and rejects. */
  readonly refuse?: number;
  /** The call does what it should, and rejects. */
  readonly loseAnswer?: number;
  /** The content of the store is lost: a call that reads finds nothing, and a challenge that it took is lost. */
  readonly loseState?: number;
  /** A listener is not told of a change. */
  readonly loseChange?: number;
  /** The call takes up to `delayMs`, before it acts and again before it answers. */
  readonly dawdle?: number;
  readonly delayMs?: number;
}

const READING = new Set<PropertyKey>(['load', 'take', 'recall', 'acceptedAgo']);

/**
 * A store that does all that the contract allows a store to do wrong. What goes wrong follows from the seed and
 * the order of the calls.
 */
export function unreliableStore(
  store: ChallengeStore,
  seed: number,
  misfortunes: Misfortunes = {},
): ChallengeStore {
  const { refuse = 0.2, loseAnswer = 0.2, loseState = 0.2, loseChange = 0.2 } = misfortunes;
  const { dawdle = 0.2, delayMs = 5 } = misfortunes;
  const random = generator(seed);
  const happens = (probability: number): boolean => random() < probability;

  async function suffer<T>(operation: keyof ChallengeStore, call: () => Promise<T>, nothing: T): Promise<T> {
    // All at once, so that the order of calls alone decides, not how long each takes.
    const fate = {
      before: happens(dawdle) ? random() * delayMs : 0,
      after: happens(dawdle) ? random() * delayMs : 0,
      refused: happens(refuse),
      answerLost: happens(loseAnswer),
      stateLost: READING.has(operation) && happens(loseState),
    };
    if (fate.before > 0) await delay(fate.before);
    if (fate.refused) throw new Error(`${operation}: the store did nothing`);
    const result = await call();
    if (fate.after > 0) await delay(fate.after);
    if (fate.answerLost) throw new Error(`${operation}: the store's answer was lost`);
    return fate.stateLost ? nothing : result;
  }

  return {
    load: (key) => suffer('load', () => store.load(key), undefined),
    replace: (key, seen, next, maxAgeMs) =>
      suffer('replace', () => store.replace(key, seen, next, maxAgeMs), next),
    discard: (key, nonce) => suffer('discard', () => store.discard(key, nonce), undefined),
    park: (key, parked, maxAgeMs) => suffer('park', () => store.park(key, parked, maxAgeMs), undefined),
    take: (key) => suffer('take', () => store.take(key), undefined),
    recall: (key) => suffer('recall', () => store.recall(key), undefined),
    learn: (key, learned) => suffer('learn', () => store.learn(key, learned), undefined),
    noteAccepted: (key, ms) => suffer('noteAccepted', () => store.noteAccepted(key, ms), undefined),
    acceptedAgo: (key) => suffer('acceptedAgo', () => store.acceptedAgo(key), undefined),
    lead: (key, ms) => suffer('lead', () => store.lead(key, ms), false),
    onChange: (listener) =>
      store.onChange((key) => {
        if (!happens(loseChange)) listener(key);
      }),
    release: (key) => store.release(key),
    close: () => store.close(),
  };
}

/** Numbers from 0 to 1 that only the seed decides (mulberry32). */
export function generator(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
