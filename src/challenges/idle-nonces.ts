import type { Learning } from './learning.ts';
import type { Nonce } from './nonce.ts';

/** Nonces that are kept: uploads that are not kept give one each, and take none. */
const MOST = 256;

/** Nonces for one request each at a time, with the policies `exclusive` and `single-use`. */
export class IdleNonces {
  readonly #learning: Learning;
  readonly #renew: ((nonce: Nonce) => Promise<void>) | undefined;
  /** The youngest last. */
  readonly #nonces: Nonce[] = [];

  /** `renew`: asks the upstream for a nonce to replace this one. */
  constructor(learning: Learning, renew: ((nonce: Nonce) => Promise<void>) | undefined) {
    this.#learning = learning;
    this.#renew = renew;
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
    const learning = this.#learning;
    if (next !== nonce) {
      this.#push(next);
    } else if (!nonce.retired && (learning.policy !== 'single-use' || nonce.accepted === 0)) {
      this.#push(nonce);
      this.#renewOnce(nonce);
    }
  }

  /** The oldest makes room. */
  #push(nonce: Nonce): void {
    if (this.#nonces.push(nonce) > MOST) this.#nonces.shift()?.retire();
  }

  /** One that another process left. */
  adopt(nonce: Nonce): void {
    this.#nonces.unshift(nonce);
  }

  /** Takes all of them out. */
  drain(): Nonce[] {
    return this.#nonces.splice(0);
  }

  #isUsable(nonce: Nonce): boolean {
    const learning = this.#learning;
    if (nonce.retired || nonce.exhausted || learning.isOver(nonce)) return false;
    return learning.policy !== 'single-use' || nonce.accepted === 0;
  }

  #renewOnce(nonce: Nonce): void {
    const learning = this.#learning;
    if (nonce.renewed || nonce.uses === 0) return;
    if (!learning.lifetime.isAging(learning.ageOf(nonce))) return;
    nonce.renewed = true;
    void this.#renew?.(nonce);
  }
}
