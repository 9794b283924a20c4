import type { Challenge } from '../../digest/challenge.ts';

/** A challenge with what has to go back with its answers. */
export interface HeldChallenge {
  readonly challenge: Challenge;
  /** `name=value` pairs set by the 401 that brought the challenge: they live and die with it. */
  readonly cookies: readonly string[];
}

/** A challenge that waits in a store, with its age there and then. */
export interface AgedChallenge extends HeldChallenge {
  /** Milliseconds since the upstream issued it, the time in the store included. */
  readonly ageMs: number;
}

/** A challenge with a count, on its way from one owner to the next. */
export interface ParkedChallenge extends AgedChallenge {
  /** The one that every answer so far was made with: with -sess it is part of A1. */
  readonly cnonce: string;
  /** The last nc that was used. */
  readonly count: number;
}

/**
 * How nonces of an upstream can be used, each step safer and dearer than the one before: by any number
 * of requests at once; by one request at a time; by one request at all.
 */
export type NoncePolicy = (typeof NONCE_POLICIES)[number];

export const NONCE_POLICIES = ['shared', 'exclusive', 'single-use'] as const;

/** Lessons of this age are forgotten, in milliseconds, since upstreams change. */
export const LEARNED_MS = 60 * 60_000;
/** Shorter lifetimes are not believed, in milliseconds: nonces that serve once are refused at any age. */
export const SHORTEST_LIFE_MS = 500;
/** Longer than what was learned is remembered, in milliseconds: 30 days. */
export const LONGEST_LIFE_MS = 30 * 24 * 60 * 60_000;

/** Learned facts about the nonces of an upstream; they hold for its realm and algorithm only. */
export interface Learned {
  readonly realm: string;
  readonly algorithm: string;
  readonly policy: NoncePolicy;
  /** True if its nonces come with qop, so that each belongs to one process. */
  readonly counted: boolean;
  /** True if a nonce serves another process than the one that obtained it. */
  readonly portable: boolean;
  /** The youngest age at which a nonce was refused for its age, in milliseconds; undefined: none was. */
  readonly lifetimeMs: number | undefined;
  /** Milliseconds since the first of it was learned, the time in the store included. */
  readonly ageMs: number;
}

/** Challenges with qop that wait under one key: more than any number of processes that could drain at once. */
export const PARKED_AT_MOST = 256;

/**
 * Shares challenges between processes. It never holds a credential or a hash of one. No call is retried; after a
 * rejection the outcome is unknown, and the caller goes on with its own state. The content of a store may be lost at
 * any time, without harm.
 */
export interface ChallengeStore {
  /** The challenge without qop that everybody may use; undefined: none. */
  load(key: string): Promise<AgedChallenge | undefined>;
  /**
   * Atomically puts `next` in the place of the challenge whose nonce is `seen` (undefined: of none), to be
   * forgotten when it is `maxAgeMs` old. Resolves to what is held afterwards: `next`, or the newer one of
   * somebody who was quicker.
   */
  replace(
    key: string,
    seen: string | undefined,
    next: AgedChallenge,
    maxAgeMs: number,
  ): Promise<AgedChallenge>;
  /** Removes the challenge with this nonce that everybody may use: it turned out to be of no use. */
  discard(key: string, nonce: string): Promise<void>;
  /** Leaves a challenge with qop for one other process; several can wait. Forgotten when it is `maxAgeMs` old. */
  park(key: string, parked: ParkedChallenge, maxAgeMs: number): Promise<void>;
  /** Takes the youngest one out, so that no other caller gets it; undefined: none is there. */
  take(key: string): Promise<ParkedChallenge | undefined>;
  /** Loads the learned facts about the upstream; undefined: none that is younger than `LEARNED_MS`. */
  recall(key: string): Promise<Learned | undefined>;
  /** Replaces what was learned, for every process and the next start. */
  learn(key: string, learned: Learned): Promise<void>;
  /** Notes for every process and the next start, for `ms`, that the upstream accepts the credential of the key. */
  noteAccepted(key: string, ms: number): Promise<void>;
  /** Milliseconds since that was noted last; undefined: it is not noted. */
  acceptedAgo(key: string): Promise<number | undefined>;
  /**
   * True if this process is to renew the challenge of the key: one process at a time. Ends by itself
   * after `ms`, so that a process that died does not hold it.
   */
  lead(key: string, ms: number): Promise<boolean>;
  /**
   * Calls the listener with a key that this store was asked about, when somebody else replaced its challenge or
   * learned something. Several changes may be announced as one.
   */
  onChange(listener: (key: string) => void): void;
  /** The caller no longer uses the key: its changes need not be announced. Another call with the key uses it again. */
  release(key: string): void;
  close(): Promise<void>;
}
