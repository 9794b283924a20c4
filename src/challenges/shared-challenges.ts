import { reportDefect } from '../base/expected-errors.ts';
import type {
  AgedChallenge,
  ChallengeStore,
  HeldChallenge,
  Learned,
  ParkedChallenge,
} from './store/store.ts';

/** How long a challenge is kept for others while nobody knows how long it lives, in milliseconds. */
const KEPT_MS = 15 * 60_000;

export interface SharedChallengesOptions {
  /** From `serializeKey`. */
  readonly key: string;
  readonly store: ChallengeStore;
}

/**
 * The challenges of one key that processes share through a store. No method rejects, whatever the store does: the
 * caller gets undefined and goes on with its own state.
 */
export class SharedChallenges {
  readonly #options: SharedChallengesOptions;
  /** The nonce that the store held when this process last looked. */
  #stored: string | undefined;

  constructor(options: SharedChallengesOptions) {
    this.#options = options;
  }

  /** The challenge that everybody may use. */
  async load(): Promise<AgedChallenge | undefined> {
    const { store, key } = this.#options;
    const held = await this.#try(() => store.load(key));
    if (held !== undefined) this.#stored = held.challenge.nonce;
    return held;
  }

  /** The challenge that everybody may use turned out to be of no use. */
  async discard({ challenge }: HeldChallenge): Promise<void> {
    const { store, key } = this.#options;
    await this.#try(() => store.discard(key, challenge.nonce));
  }

  /** A challenge with a count that another process left; nobody else gets it. */
  take(): Promise<ParkedChallenge | undefined> {
    const { store, key } = this.#options;
    return this.#try(() => store.take(key));
  }

  /** Offers a challenge without qop to everybody; resolves to the one of somebody who was quicker. */
  async share(next: AgedChallenge, lifetimeMs = KEPT_MS): Promise<AgedChallenge | undefined> {
    const { store, key } = this.#options;
    const held = await this.#try(() => store.replace(key, this.#stored, next, lifetimeMs));
    if (held === undefined) return undefined;
    this.#stored = held.challenge.nonce;
    return held.challenge.nonce === next.challenge.nonce ? undefined : held;
  }

  /** Leaves a challenge with a count for the next process. */
  async park(parked: ParkedChallenge, lifetimeMs = KEPT_MS): Promise<void> {
    const { store, key } = this.#options;
    await this.#try(() => store.park(key, parked, lifetimeMs));
  }

  /** True if this process is the one to renew; without the store every process is. */
  async lead(ms: number): Promise<boolean> {
    const { store, key } = this.#options;
    return (await this.#try(() => store.lead(key, ms))) ?? true;
  }

  /** Loads what was learned about the upstream; undefined: the store failed. */
  recall(): Promise<{ readonly learned: Learned | undefined } | undefined> {
    const { store, key } = this.#options;
    return this.#try(async () => ({ learned: await store.recall(key) }));
  }

  /** Tells every process and the next start; false: the store did not confirm it. */
  async learn(learned: Learned): Promise<boolean> {
    const { store, key } = this.#options;
    const written = await this.#try(async () => {
      await store.learn(key, learned);
      return true;
    });
    return written ?? false;
  }

  async #try<T>(call: () => Promise<T>): Promise<T | undefined> {
    try {
      return await call();
    } catch (error) {
      // The store tells of its failures itself.
      return reportDefect(error);
    }
  }
}
