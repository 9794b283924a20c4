import { type Clock, timerDelay } from '../base/clock.ts';
import type { Learning } from './learning.ts';
import type { Nonce } from './nonce.ts';
import type { SharedChallenges } from './shared-challenges.ts';

/** When in its life a nonce is renewed, as a share; where in between is up to chance. */
const EARLIEST = 0.7;
const SPREAD = 0.1;
/** Share of a life after which a renewal without a newer nonce counts as failed. */
const NEXT_TRY = 0.1;

export interface RenewalDeps {
  readonly learning: Learning;
  readonly sharedChallenges: SharedChallenges;
  readonly clock: Clock;
  /** From 0 to 1. */
  readonly random: () => number;
  /** Asks the upstream for a newer nonce, with `NoncePool.open(nonce)`; undefined: nothing is renewed ahead. */
  readonly renew: ((nonce: Nonce) => Promise<void>) | undefined;
}

/** Replaces the nonce in use before the upstream refuses it, so that no request has to wait for that. */
export class Renewal {
  readonly #deps: RenewalDeps;
  #timer: NodeJS.Timeout | undefined;

  constructor(deps: RenewalDeps) {
    this.#deps = deps;
  }

  /** This nonce is in use from now on. Without a known lifetime there is nothing to plan. */
  plan(nonce: Nonce): void {
    const { learning, clock, random, renew } = this.#deps;
    this.cancel();
    const life = learning.lifetime.ms;
    if (life === undefined || renew === undefined) return;
    const share = EARLIEST + SPREAD * random();
    this.#at(nonce, life * share - (clock.now() - nonce.obtainedAt));
  }

  /** No nonce is in use. */
  cancel(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  #at(nonce: Nonce, delayMs: number): void {
    this.#timer = setTimeout(() => void this.#renew(nonce), timerDelay(delayMs)).unref();
  }

  async #renew(nonce: Nonce): Promise<void> {
    const { learning, sharedChallenges, renew } = this.#deps;
    const life = learning.lifetime.ms;
    if (life === undefined || learning.ageOf(nonce) > life) return;
    this.#at(nonce, life * NEXT_TRY);
    // An unused nonce is not worth a request to the upstream; it may still come into use.
    if (nonce.uses === 0) return;
    // Only what everybody uses needs one process to renew it for all.
    if (!learning.sharesNonces || (await sharedChallenges.lead(life * NEXT_TRY))) await renew?.(nonce);
  }
}
