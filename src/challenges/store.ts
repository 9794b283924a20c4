import type { Challenge } from '../digest/challenge.ts';

/** A challenge with what has to go back with its answers. */
export interface HeldChallenge {
  readonly challenge: Challenge;
  /** `name=value` pairs set by the 401 that brought the challenge: they live and die with it. */
  readonly cookies: readonly string[];
}

/** What a challenge belongs to. Two keys that differ in any part never share a nonce. */
export interface ChallengeKey {
  readonly deployment: string;
  readonly origin: string;
  readonly credential: string;
  readonly credentialVersion: string;
  readonly egressAddress: string;
}

/** The key as one string, without ambiguity whatever its parts hold. */
export function serializeKey(key: ChallengeKey): string {
  return JSON.stringify([
    key.deployment,
    key.origin,
    key.credential,
    key.credentialVersion,
    key.egressAddress,
  ]);
}

/**
 * Challenges that every process may use: those without qop, which have no count. Never holds a
 * credential or a hash of one. No call retries; a throw means that nothing is known of the outcome,
 * and the caller goes on with what it has.
 */
export interface ChallengeStore {
  /** The challenge shared under `key`; undefined: none. */
  load(key: string): Promise<HeldChallenge | undefined>;
  /**
   * Atomically puts `next` in the place of the challenge whose nonce is `seen` (undefined: of none).
   * Resolves to what is held afterwards: `next`, or the newer one of somebody who was quicker.
   */
  replace(key: string, seen: string | undefined, next: HeldChallenge): Promise<HeldChallenge>;
}
