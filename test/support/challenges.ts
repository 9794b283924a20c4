import { expect } from '@jest/globals';
import { Secret } from '../../src/base/secret.ts';
import type { Nonce, NonceAttempt } from '../../src/challenges/nonce.ts';
import type { NoncePool, PoolOptions } from '../../src/challenges/pool.ts';
import { SharedChallenges } from '../../src/challenges/shared-challenges.ts';
import { MemoryChallengeStore } from '../../src/challenges/store/memory.ts';
import type {
  AgedChallenge,
  ChallengeStore,
  HeldChallenge,
  Learned,
  ParkedChallenge,
} from '../../src/challenges/store/store.ts';
import { type Challenge, parseChallenges } from '../../src/digest/challenge.ts';

/** A challenge without qop that was issued just now. */
export function aged(nonce: string, ageMs = 0): AgedChallenge {
  return { challenge: challengeOf(`nonce="${nonce}"`), cookies: [], ageMs };
}

/** A challenge with qop, with which so many answers were made. */
export function parked(nonce: string, count: number, ageMs = 0): ParkedChallenge {
  const challenge = challengeOf(`nonce="${nonce}", qop="auth"`);
  return { challenge, cookies: [], ageMs, cnonce: `cnonce of ${nonce}`, count };
}

/** A challenge in which everything is there that a challenge can have, in characters that need care. */
export function ornate(qop = 'auth,auth-int'): Challenge {
  return challengeOf(
    'nonce="n\\"o\\\\n\u00e7e=\u00ff", opaque="{}[]: \u00b5\'", ' +
      `algorithm=sha-512-256${qop === '' ? '' : '-sess'}, qop="${qop}", ` +
      'stale=TRUE, userhash=true, charset=UTF-8',
  );
}

export const learned: Learned = {
  realm: 'r\u00e9"alm',
  algorithm: 'MD5',
  policy: 'exclusive',
  counted: true,
  portable: false,
  lifetimeMs: 1234.5,
  ageMs: 0,
};

/** The same, when a store gives it back. */
export const recalled: Learned = { ...learned, ageMs: expect.any(Number) as unknown as number };

/** Options of a pool of key `k` that learns its policy and renews nothing. Its time stands still. */
export function poolOptions(
  change: Partial<PoolOptions> = {},
  store: ChallengeStore = new MemoryChallengeStore(),
): PoolOptions {
  return {
    sharedChallenges: new SharedChallenges({ key: 'k', store }),
    credential: { username: 'u', password: new Secret('p') },
    algorithms: ['MD5'],
    clock: { now: () => 0 },
    newCnonce: () => 'c',
    random: () => 0,
    policy: 'auto',
    onStep: () => {},
    onBound: () => {},
    renew: undefined,
    ...change,
  };
}

/** Lessons about an upstream that issues the challenges of `aged`, whose nonces serve all processes. */
export const sharedFacts: Learned = {
  ...learned,
  realm: aged('n').challenge.realm,
  policy: 'shared',
  counted: false,
  portable: true,
  lifetimeMs: undefined,
};

/** One attempt with a nonce, whose outcome is told next; it is not under way any more. */
export function attemptWith(pool: NoncePool, nonce: Nonce): NonceAttempt {
  const attempt = pool.begin(nonce);
  if (attempt === undefined) throw new Error('the nonce may not be used');
  nonce.endAttempt();
  return attempt;
}

/** The upstream sends a challenge and accepts the attempt with its nonce. */
export function obtain(pool: NoncePool, challenge: HeldChallenge, nextnonce?: string): Nonce {
  const pending = pool.open();
  const nonce = pool.offer(pending, challenge);
  pool.accept(attemptWith(pool, nonce), pending, nextnonce);
  pool.close(pending);
  return nonce;
}

/** Another process shares a challenge without qop. */
export async function shareElsewhere(store: ChallengeStore, nonce: string, ageMs = 0): Promise<void> {
  const held = await store.load('k');
  await store.replace('k', held?.challenge.nonce, aged(nonce, ageMs), 60 * 60_000);
}

/** Lets calls to a store in memory, and its announcements, arrive. */
export async function turns(): Promise<void> {
  for (let turn = 0; turn < 10; turn += 1) await new Promise((resolve) => setImmediate(resolve));
}

function challengeOf(parameters: string): Challenge {
  const [challenge] = parseChallenges([`Digest realm="r\u00e9alm", ${parameters}`]);
  if (challenge === undefined) throw new Error('not a challenge');
  return challenge;
}
