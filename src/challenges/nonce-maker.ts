import type { Clock } from '../base/clock.ts';
import type { Credential } from '../digest/authorization.ts';
import { withNonce } from '../digest/challenge.ts';
import { Nonce } from './nonce.ts';
import type { AgedChallenge, HeldChallenge, ParkedChallenge } from './store.ts';

export interface NonceMakerOptions {
  readonly credential: Credential;
  readonly clock: Clock;
  /** A new random cnonce. */
  readonly newCnonce: () => string;
}

/** Makes challenges into nonces that can be used, wherever they come from. */
export class NonceMaker {
  readonly #options: NonceMakerOptions;

  constructor(options: NonceMakerOptions) {
    this.#options = options;
  }

  /** The upstream has just issued it. */
  issued(held: HeldChallenge): Nonce {
    const { credential, clock, newCnonce } = this.#options;
    return new Nonce(held, credential, { cnonce: newCnonce(), obtainedAt: clock.now() });
  }

  /** Another process obtained it, and counted on it if it has a count. */
  adopted(held: AgedChallenge | ParkedChallenge): Nonce {
    const { credential, clock, newCnonce } = this.#options;
    const obtainedAt = clock.now() - held.ageMs;
    const owned = 'count' in held ? { cnonce: held.cnonce, count: held.count } : { cnonce: newCnonce() };
    return new Nonce(held, credential, { obtainedAt, ...owned });
  }

  /** The upstream named it to be used after this one (nextnonce, RFC 7616 §3.5). */
  following(nonce: Nonce, nextnonce: string): Nonce {
    if (nextnonce === nonce.challenge.nonce) return nonce;
    const { credential, clock, newCnonce } = this.#options;
    const held = { challenge: withNonce(nonce.challenge, nextnonce), cookies: nonce.cookies };
    const { lane } = nonce;
    return new Nonce(held, credential, { cnonce: newCnonce(), obtainedAt: clock.now(), lane });
  }
}
