import type { Clock } from '../base/clock.ts';
import type { AlgorithmName } from '../digest/algorithms.ts';
import { type Credential, canAnswer } from '../digest/authorization.ts';
import { type Challenge, chooseChallenge } from '../digest/challenge.ts';

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
