import { reportDefect } from '../base/expected-errors.ts';
import { NoncePool, type PoolOptions } from './pool.ts';
import { SharedChallenges } from './shared-challenges.ts';
import type { ChallengeStore } from './store/store.ts';

/** Options of a pool, and how this user of it renews a nonce. */
export interface PoolUserOptions extends Omit<PoolOptions, 'sharedChallenges'> {
  /** From `serializeKey`. */
  readonly key: string;
}

/** The use of a pool by one upstream. */
export interface PoolUse {
  readonly pool: NoncePool;
  /**
   * Takes over what other processes share, and what was learned with another credential, unless another user of
   * the pool has done so.
   */
  restore(former?: NoncePool): Promise<void>;
  /** Ends this use; the last user leaves the nonces to other processes. Can be called again. */
  end(): Promise<void>;
}

/** How long it is known that the upstream accepted a credential, in milliseconds. */
const ACCEPTED_MS = 10 * 60_000;

interface Entry {
  readonly key: string;
  readonly pool: NoncePool;
  /** Users of the pool, the latest last. */
  readonly users: PoolUserOptions[];
  restored: Promise<void> | undefined;
}

/**
 * The pools of this process, one for each key. Upstreams that have the same key, as before and after a reload, use
 * the same pool, so that one counter gives every nc of a nonce.
 */
export class NoncePools {
  readonly #store: ChallengeStore;
  readonly #entries = new Map<string, Entry>();

  constructor(store: ChallengeStore) {
    this.#store = store;
    store.onChange((key) => {
      for (const entry of this.#entries.values()) if (entry.key === key) void entry.pool.adopt();
    });
  }

  /** The pool of this key and these settings, which is made if nobody uses it. */
  use(options: PoolUserOptions): PoolUse {
    const { key, policy, algorithms, renew } = options;
    const id = JSON.stringify([key, policy, algorithms, renew !== undefined]);
    const entry = this.#entries.get(id) ?? this.#open(options);
    this.#entries.set(id, entry);
    entry.users.push(options);
    return {
      pool: entry.pool,
      restore: (former) => {
        entry.restored ??= entry.pool.restore(former);
        return entry.restored;
      },
      end: async () => {
        const at = entry.users.indexOf(options);
        if (at === -1) return;
        entry.users.splice(at, 1);
        if (entry.users.length > 0) return;
        this.#entries.delete(id);
        await entry.pool.handOver();
        // Another pool of the key may have other settings.
        if (![...this.#entries.values()].some((other) => other.key === key)) this.#store.release(key);
      },
    };
  }

  /** Tells the other processes, and the next start, that the upstream accepts the credential of this key. */
  async noteAccepted(key: string): Promise<void> {
    try {
      await this.#store.noteAccepted(key, ACCEPTED_MS);
    } catch (error) {
      // The store tells of its failures itself.
      reportDefect(error);
    }
  }

  /** Milliseconds since a process told so; `never`: none did within ten minutes; `unknown`: the store fails. */
  async acceptedAgo(key: string): Promise<number | 'never' | 'unknown'> {
    try {
      return (await this.#store.acceptedAgo(key)) ?? 'never';
    } catch (error) {
      reportDefect(error);
      return 'unknown';
    }
  }

  /** True if this process is the one to do what the key names; false if another one is, or the store fails. */
  async lead(key: string, ms: number): Promise<boolean> {
    try {
      return await this.#store.lead(key, ms);
    } catch (error) {
      reportDefect(error);
      return false;
    }
  }

  #open(options: PoolUserOptions): Entry {
    const { key, renew } = options;
    const users: PoolUserOptions[] = [];
    const pool = new NoncePool({
      ...options,
      sharedChallenges: new SharedChallenges({ key, store: this.#store }),
      // The connections of an earlier user may be closed.
      renew: renew && (async (nonce) => users.at(-1)?.renew?.(nonce)),
    });
    return { key, pool, users, restored: undefined };
  }
}
