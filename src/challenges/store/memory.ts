import { type Clock, monotonicClock } from '../../base/clock.ts';
import { putBounded } from '../../base/maps.ts';
import {
  type AgedChallenge,
  type ChallengeStore,
  LEARNED_MS,
  type Learned,
  PARKED_AT_MOST,
  type ParkedChallenge,
} from './store.ts';

/** Keys of each kind: more than credentials, upstreams and egress addresses of a large configuration make. */
const KEYS_AT_MOST = 65_536;

/** Content that joined stores share. */
class Content {
  readonly shared = new Map<string, Kept<AgedChallenge>>();
  readonly parked = new Map<string, Kept<ParkedChallenge>[]>();
  readonly learned = new Map<string, Kept<Learned>>();
  /** When a key was noted as accepted, and until when that counts, on this process's clock. */
  readonly accepted = new Map<string, { readonly at: number; readonly until: number }>();
  readonly leaders = new Map<string, { readonly leader: unknown; readonly until: number }>();
  readonly listeners = new Set<{ readonly owner: unknown; readonly listener: (key: string) => void }>();
}

type Aged = Pick<AgedChallenge, 'ageMs'>;

interface Kept<T> {
  readonly value: T;
  /** On this process's clock. */
  readonly issuedAt: number;
  readonly maxAgeMs: number;
}

/** A store in this process. It keeps a bounded number of keys; the one that was written longest ago makes way. */
export class MemoryChallengeStore implements ChallengeStore {
  readonly #clock: Clock;
  #content = new Content();

  constructor(clock: Clock = monotonicClock) {
    this.#clock = clock;
  }

  /** Another store with the same content, as another process on one Redis has. */
  join(): MemoryChallengeStore {
    const store = new MemoryChallengeStore(this.#clock);
    store.#content = this.#content;
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
    putBounded(this.#content.shared, key, this.#keep(next, maxAgeMs), KEYS_AT_MOST);
    this.#announce(key);
    return Promise.resolve(next);
  }

  discard(key: string, nonce: string): Promise<void> {
    if (this.#held(key)?.challenge.nonce === nonce) this.#content.shared.delete(key);
    return Promise.resolve();
  }

  park(key: string, parked: ParkedChallenge, maxAgeMs: number): Promise<void> {
    const waiting = youngestLast([...this.#waiting(key), this.#keep(parked, maxAgeMs)]);
    putBounded(this.#content.parked, key, waiting.slice(-PARKED_AT_MOST), KEYS_AT_MOST);
    return Promise.resolve();
  }

  take(key: string): Promise<ParkedChallenge | undefined> {
    const waiting = this.#waiting(key);
    const youngest = waiting.pop();
    if (waiting.length === 0) this.#content.parked.delete(key);
    else this.#content.parked.set(key, waiting);
    return Promise.resolve(youngest && this.#aged(youngest));
  }

  recall(key: string): Promise<Learned | undefined> {
    return Promise.resolve(this.#fresh(this.#content.learned.get(key)));
  }

  learn(key: string, learned: Learned): Promise<void> {
    putBounded(this.#content.learned, key, this.#keep(learned, LEARNED_MS), KEYS_AT_MOST);
    this.#announce(key);
    return Promise.resolve();
  }

  noteAccepted(key: string, ms: number): Promise<void> {
    const at = this.#clock.now();
    putBounded(this.#content.accepted, key, { at, until: at + ms }, KEYS_AT_MOST);
    return Promise.resolve();
  }

  acceptedAgo(key: string): Promise<number | undefined> {
    const now = this.#clock.now();
    const note = this.#content.accepted.get(key);
    return Promise.resolve(note !== undefined && now < note.until ? now - note.at : undefined);
  }

  lead(key: string, ms: number): Promise<boolean> {
    const { leaders } = this.#content;
    const now = this.#clock.now();
    const current = leaders.get(key);
    if (current !== undefined && current.leader !== this && current.until > now)
      return Promise.resolve(false);
    putBounded(leaders, key, { leader: this, until: now + ms }, KEYS_AT_MOST);
    return Promise.resolve(true);
  }

  onChange(listener: (key: string) => void): void {
    this.#content.listeners.add({ owner: this, listener });
  }

  /** Needs no filter: the listener knows which keys it uses. */
  release(_key: string): void {}

  close(): Promise<void> {
    const { listeners } = this.#content;
    for (const entry of listeners) if (entry.owner === this) listeners.delete(entry);
    return Promise.resolve();
  }

  #held(key: string): AgedChallenge | undefined {
    return this.#fresh(this.#content.shared.get(key));
  }

  #waiting(key: string): Kept<ParkedChallenge>[] {
    return (this.#content.parked.get(key) ?? []).filter((kept) => this.#isFresh(kept));
  }

  #fresh<T extends Aged>(kept: Kept<T> | undefined): T | undefined {
    return kept !== undefined && this.#isFresh(kept) ? this.#aged(kept) : undefined;
  }

  #keep<T extends Aged>(value: T, maxAgeMs: number): Kept<T> {
    return { value, issuedAt: this.#clock.now() - value.ageMs, maxAgeMs };
  }

  #isFresh({ issuedAt, maxAgeMs }: Kept<unknown>): boolean {
    return this.#clock.now() - issuedAt < maxAgeMs;
  }

  #aged<T extends Aged>({ value, issuedAt }: Kept<T>): T {
    return { ...value, ageMs: this.#clock.now() - issuedAt };
  }

  #announce(key: string): void {
    for (const { owner, listener } of this.#content.listeners) if (owner !== this) listener(key);
  }
}

function youngestLast<T>(kept: Kept<T>[]): Kept<T>[] {
  return kept.sort((a, b) => a.issuedAt - b.issuedAt);
}
