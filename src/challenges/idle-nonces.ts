import type { Clock } from '../base/clock.ts';
import type { Learning } from './learning.ts';
import type { Nonce } from './nonce.ts';

export interface IdleNoncesDeps {
  readonly learning: Learning;
  readonly clock: Clock;
  /** Asks the upstream for a nonce in the place of this one. */
  readonly renew: ((nonce: Nonce) => Promise<void>) | undefined;
}

/** Nonces for one request each at a time, with the policies `exclusive` and `single-use`. */
export class IdleNonces {
  readonly #deps: IdleNoncesDeps;
  /** The youngest last. */
  readonly #nonces: Nonce[] = [];

  constructor(deps: IdleNoncesDeps) {
    this.#deps = deps;
  }

  /** The youngest that is still good, for one request; undefined: there is none. */
  take(): Nonce | undefined {
    for (let nonce = this.#nonces.pop(); nonce !== undefined; nonce = this.#nonces.pop()) {
      if (this.#isUsable(nonce)) return nonce;
    }
    return undefined;
  }

  /** One request is done with the nonce: the next may take it, or the one that follows it. */
  giveBack(nonce: Nonce, next: Nonce): void {
    const { learning } = this.#deps;
    if (next !== nonce) this.#nonces.push(next);
    if (nonce.retired) return;
    if (this.#isTrial(nonce)) {
      this.#nonces.push(nonce);
    } else if (next === nonce && (learning.policy !== 'single-use' || nonce.accepted === 0)) {
      this.#nonces.push(nonce);
      this.#renewOnce(nonce);
    }
  }

  /** One that another process left. */
  adopt(nonce: Nonce): void {
    this.#nonces.unshift(nonce);
  }

  /** All of them, which nobody gets from here any more. */
  drain(): Nonce[] {
    return this.#nonces.splice(0);
  }

  /** True if the nonce is to be used once more to try the freer policy, in which order takes two requests. */
  #isTrial(nonce: Nonce): boolean {
    const { learning } = this.#deps;
    if (nonce.hasCountLeftOut) return true;
    if (!learning.takePolicyTrial()) return false;
    nonce.trial = 'policy';
    if (learning.policy === 'exclusive' && !nonce.shareable) nonce.swapNextCounts();
    return true;
  }

  #isUsable(nonce: Nonce): boolean {
    const { learning, clock } = this.#deps;
    if (nonce.retired || nonce.exhausted) return false;
    if (learning.policy === 'single-use' && nonce.accepted > 0 && nonce.trial !== 'policy') return false;
    if (!learning.isOver(nonce)) return true;
    const isTrial =
      clock.now() - nonce.obtainedAt >= learning.lifetime.trialAge(nonce) && learning.lifetime.takeTrial();
    if (isTrial) nonce.trial = 'age';
    return isTrial;
  }

  #renewOnce(nonce: Nonce): void {
    const { learning, renew } = this.#deps;
    if (nonce.renewed || nonce.uses === 0) return;
    if (!learning.lifetime.isAging(learning.ageOf(nonce), nonce)) return;
    nonce.renewed = true;
    void renew?.(nonce);
  }
}
