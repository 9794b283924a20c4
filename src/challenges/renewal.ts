import type { Clock } from '../base/clock.ts';
import { timerDelay } from '../base/timer.ts';
import type { Lifetime } from './lifetime.ts';
import type { Nonce } from './nonce.ts';

/** When in its life a nonce is renewed, as a share; where in between is up to chance. */
const EARLIEST = 0.7;
const SPREAD = 0.1;
/** Share of a life after which a renewal without a newer nonce counts as failed. */
const NEXT_TRY = 0.1;

export interface RenewalDeps {
  readonly lifetime: Lifetime;
  readonly clock: Clock;
  /** From 0 to 1. */
  readonly random: () => number;
  /** True if this process is the one to renew, for the time given in milliseconds. */
  readonly lead: (ms: number) => Promise<boolean>;
  /** Asks the upstream for a newer nonce and puts it in the place of this one. */
  readonly renew: (nonce: Nonce) => Promise<void>;
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
    const { lifetime, clock, random } = this.#deps;
    this.cancel();
    const life = lifetime.of(nonce);
    if (life === undefined) return;
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
    const { lifetime, clock, lead, renew } = this.#deps;
    const life = lifetime.of(nonce);
    if (life === undefined || clock.now() - nonce.obtainedAt > life) return;
    this.#at(nonce, life * NEXT_TRY);
    // A nonce that nobody used is not worth a request to the upstream; it may still come into use.
    if (nonce.uses > 0 && (await lead(life * NEXT_TRY))) await renew(nonce);
  }
}
