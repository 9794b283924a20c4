import type { Learning } from './learning.ts';
import type { Nonce } from './nonce.ts';

export interface FreeNoncesParts {
  readonly learning: Learning;
  /** Asks the upstream for a nonce in the place of this one. */
  readonly renew: ((nonce: Nonce) => Promise<void>) | undefined;
}

/** Nonces for one request each at a time, with the policies `exclusive` and `single-use`. */
export class FreeNonces {
  readonly #parts: FreeNoncesParts;
  /** The youngest last. */
  readonly #nonces: Nonce[] = [];

  constructor(parts: FreeNoncesParts) {
    this.#parts = parts;
  }

  /** The youngest that is still good, for one request; undefined: there is none. */
  take(): Nonce | undefined {
    for (let nonce = this.#nonces.pop(); nonce !== undefined; nonce = this.#nonces.pop()) {
      if (!nonce.retired && !nonce.exhausted && !this.#parts.learning.isOver(nonce)) return nonce;
    }
    return undefined;
  }

  /** One request is done with the nonce: the next may take it, or the one that follows it. */
  giveBack(nonce: Nonce, next: Nonce): void {
    if (next !== nonce) {
      this.#nonces.push(next);
    } else if (this.#parts.learning.policy === 'exclusive' && !nonce.retired) {
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

  #renewOnce(nonce: Nonce): void {
    const { learning, renew } = this.#parts;
    if (nonce.renewed || nonce.uses === 0) return;
    if (!learning.lifetime.isAging(learning.ageOf(nonce), nonce)) return;
    nonce.renewed = true;
    void renew?.(nonce);
  }
}
