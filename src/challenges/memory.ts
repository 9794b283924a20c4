import type { ChallengeStore, HeldChallenge } from './store.ts';

/** The store of a gateway that runs alone: it lives as long as the process. */
export class MemoryChallengeStore implements ChallengeStore {
  readonly #held = new Map<string, HeldChallenge>();

  load(key: string): Promise<HeldChallenge | undefined> {
    return Promise.resolve(this.#held.get(key));
  }

  replace(key: string, seen: string | undefined, next: HeldChallenge): Promise<HeldChallenge> {
    const held = this.#held.get(key);
    if (held !== undefined && held.challenge.nonce !== seen) return Promise.resolve(held);
    this.#held.set(key, next);
    return Promise.resolve(next);
  }
}
