import type { Clock } from '../base/clock.ts';
import { unlessFailed } from '../base/expected-errors.ts';
import type { AlgorithmName } from '../digest/algorithms.ts';
import { type Credential, canAnswer } from '../digest/authorization.ts';
import { type Challenge, chooseChallenge } from '../digest/challenge.ts';
import type {
  AgedChallenge,
  ChallengeStore,
  HeldChallenge,
  Learned,
  ParkedChallenge,
} from './store/store.ts';

/** How long a challenge of unknown lifetime is kept for others, in milliseconds. */
const KEPT_MS = 15 * 60_000;

export interface SharedChallengesOptions {
  /** In the store. */
  readonly key: string;
  readonly store: ChallengeStore;
  /** Called with each challenge that was taken over from another process. */
  readonly onTaken?: (parked: ParkedChallenge) => void;
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
    const held = await this.#call((store, key) => store.load(key));
    if (held !== undefined) this.#stored = held.challenge.nonce;
    return held;
  }

  /** The challenge that everybody may use turned out to be of no use. */
  discard({ challenge }: HeldChallenge): Promise<void> {
    return this.#call((store, key) => store.discard(key, challenge.nonce));
  }

  /** A challenge with a count that another process left; no other process gets it. */
  async take(): Promise<ParkedChallenge | undefined> {
    const taken = await this.#call((store, key) => store.take(key));
    if (taken !== undefined) this.#options.onTaken?.(taken);
    return taken;
  }

  /** Offers a challenge without qop to everybody; resolves to the one of somebody who was quicker. */
  async share(next: AgedChallenge, lifetimeMs = KEPT_MS): Promise<AgedChallenge | undefined> {
    const held = await this.#call((store, key) => store.replace(key, this.#stored, next, lifetimeMs));
    if (held === undefined) return undefined;
    this.#stored = held.challenge.nonce;
    return held.challenge.nonce === next.challenge.nonce ? undefined : held;
  }

  /** Leaves a challenge with a count for the next process. */
  park(parked: ParkedChallenge, lifetimeMs = KEPT_MS): Promise<void> {
    return this.#call((store, key) => store.park(key, parked, lifetimeMs));
  }

  /** True if this process is the one to renew; without the store every process is. */
  async lead(ms: number): Promise<boolean> {
    return (await this.#call((store, key) => store.lead(key, ms))) ?? true;
  }

  /** Loads what was learned about the upstream; undefined: the store failed. */
  recall(): Promise<{ readonly learned: Learned | undefined } | undefined> {
    return this.#call(async (store, key) => ({ learned: await store.recall(key) }));
  }

  /** Tells every process and the next start; false: the store did not confirm it. */
  async learn(learned: Learned): Promise<boolean> {
    return (await this.#call((store, key) => store.learn(key, learned).then(() => true))) ?? false;
  }

  /** Undefined: the store failed. */
  #call<T>(work: (store: ChallengeStore, key: string) => Promise<T>): Promise<T | undefined> {
    const { store, key } = this.#options;
    return unlessFailed(() => work(store, key));
  }
}

/** Refused nonces of the store in a row that are tolerated: they may have expired unnoticed. */
const ENOUGH = 3;
/** Pause in adopting nonces from the store, in milliseconds; it doubles with each further refusal. */
const FIRST_PAUSE_MS = 10_000;
const LONGEST_PAUSE_MS = 5 * 60_000;

export interface AdoptionGuardOptions {
  readonly credential: Credential;
  /** Algorithms of the deployment; no other is used, whatever the source of the challenge. */
  readonly algorithms: readonly AlgorithmName[];
  readonly clock: Clock;
}

/**
 * Decides which challenges of a store this process uses: a stranger, or a gateway with another configuration, may
 * have put them there.
 */
export class AdoptionGuard {
  readonly #options: AdoptionGuardOptions;
  /** Realm of the last challenge from the upstream itself; undefined: none has come. */
  #realm: string | undefined;
  #refused = 0;
  #until = Number.NEGATIVE_INFINITY;

  constructor(options: AdoptionGuardOptions) {
    this.#options = options;
  }

  /** True if this process would answer the challenge if the upstream sent it, in the realm that it has here. */
  fits(challenge: Challenge): boolean {
    const { credential, algorithms } = this.#options;
    if (this.#realm !== undefined && challenge.realm !== this.#realm) return false;
    return chooseChallenge([challenge], algorithms) !== undefined && canAnswer(challenge, credential);
  }

  /**
   * Whether too many nonces of the store were refused for another one to be used now: each is a refused attempt, and
   * an upstream may lock the gateway's address out after some.
   */
  get paused(): boolean {
    return this.#options.clock.now() < this.#until;
  }

  /** The upstream sent a challenge; with another realm it is another upstream. */
  issued({ realm }: Challenge): void {
    if (realm !== this.#realm) this.#forget();
    this.#realm = realm;
  }

  /** A nonce of the store was accepted. */
  accepted(): void {
    this.#forget();
  }

  /** A nonce of the store was refused before it was accepted here. */
  refused(): void {
    this.#refused += 1;
    const excess = this.#refused - ENOUGH;
    const pause = Math.min(FIRST_PAUSE_MS * 2 ** excess, LONGEST_PAUSE_MS);
    if (excess >= 0) this.#until = this.#options.clock.now() + pause;
  }

  #forget(): void {
    this.#refused = 0;
    this.#until = Number.NEGATIVE_INFINITY;
  }
}
