import { type Clock, monotonicClock } from '../../base/clock.ts';
import type { AgedChallenge, ChallengeStore, Learned, ParkedChallenge } from './store.ts';

/** Content that joined stores share. */
class Shelves {
  readonly shared = new Map<string, Kept<AgedChallenge>>();
  readonly parked = new Map<string, Kept<ParkedChallenge>[]>();
  readonly learned = new Map<string, Learned>();
  readonly leaders = new Map<string, { readonly leader: unknown; readonly until: number }>();
  readonly listeners = new Set<{ readonly owner: unknown; readonly listener: (key: string) => void }>();
}

interface Kept<T> {
  readonly value: T;
  /** On this process's clock. */
  readonly issuedAt: number;
  readonly maxAgeMs: number;
}

/** The store of a gateway that runs alone: it lives as long as the process. */
export class MemoryChallengeStore implements ChallengeStore {
  readonly #clock: Clock;
  #shelves = new Shelves();

  constructor(clock: Clock = monotonicClock) {
    this.#clock = clock;
  }

  /** Another store with the same content, as another process on one Redis has. */
  join(): MemoryChallengeStore {
    const store = new MemoryChallengeStore(this.#clock);
    store.#shelves = this.#shelves;
    return store;
  }

  load(key: string): Promise<AgedChallenge | undefined> {
    return Promise.resolve(this.#held(key));
  }

  replace(
    key: string,
    seen: string | undefined,
    next: AgedChallenge,
    maxAgeMs: number,
  ): Promise<AgedChallenge> {
    const held = this.#held(key);
    if (held !== undefined && held.challenge.nonce !== seen) return Promise.resolve(held);
    this.#shelves.shared.set(key, this.#keep(next, maxAgeMs));
    this.#announce(key);
    return Promise.resolve(next);
  }

  discard(key: string, nonce: string): Promise<void> {
    if (this.#held(key)?.challenge.nonce === nonce) this.#shelves.shared.delete(key);
    return Promise.resolve();
  }

  park(key: string, parked: ParkedChallenge, maxAgeMs: number): Promise<void> {
    this.#shelves.parked.set(key, [...this.#waiting(key), this.#keep(parked, maxAgeMs)]);
    return Promise.resolve();
  }

  take(key: string): Promise<ParkedChallenge | undefined> {
    const waiting = this.#waiting(key).sort((a, b) => a.issuedAt - b.issuedAt);
    const youngest = waiting.pop();
    this.#shelves.parked.set(key, waiting);
    return Promise.resolve(youngest && this.#aged(youngest));
  }

  recall(key: string): Promise<Learned | undefined> {
    return Promise.resolve(this.#shelves.learned.get(key));
  }

  learn(key: string, learned: Learned): Promise<void> {
    this.#shelves.learned.set(key, learned);
    this.#announce(key);
    return Promise.resolve();
  }

  lead(key: string, ms: number): Promise<boolean> {
    const { leaders } = this.#shelves;
    const now = this.#clock.now();
    const current = leaders.get(key);
    if (current !== undefined && current.leader !== this && current.until > now)
      return Promise.resolve(false);
    leaders.set(key, { leader: this, until: now + ms });
    return Promise.resolve(true);
  }

  onChange(listener: (key: string) => void): void {
    this.#shelves.listeners.add({ owner: this, listener });
  }

  close(): Promise<void> {
    const { listeners } = this.#shelves;
    for (const entry of listeners) if (entry.owner === this) listeners.delete(entry);
    return Promise.resolve();
  }

  #held(key: string): AgedChallenge | undefined {
    const kept = this.#shelves.shared.get(key);
    return kept !== undefined && this.#isFresh(kept) ? this.#aged(kept) : undefined;
  }

  #waiting(key: string): Kept<ParkedChallenge>[] {
    return (this.#shelves.parked.get(key) ?? []).filter((kept) => this.#isFresh(kept));
  }

  #keep<T extends AgedChallenge>(value: T, maxAgeMs: number): Kept<T> {
    return { value, issuedAt: this.#clock.now() - value.ageMs, maxAgeMs };
  }

  #isFresh({ issuedAt, maxAgeMs }: Kept<unknown>): boolean {
    return this.#clock.now() - issuedAt < maxAgeMs;
  }

  #aged<T extends AgedChallenge>({ value, issuedAt }: Kept<T>): T {
    return { ...value, ageMs: this.#clock.now() - issuedAt };
  }

  #announce(key: string): void {
    for (const { owner, listener } of this.#shelves.listeners) if (owner !== this) listener(key);
  }
}
