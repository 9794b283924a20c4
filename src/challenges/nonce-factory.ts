import type { Clock } from '../base/clock.ts';
import type { Credential } from '../digest/authorization.ts';
import { type Challenge, withNonce } from '../digest/challenge.ts';
import { Nonce, NonceCounter, type NonceOrigin } from './nonce.ts';
import type { AgedChallenge, HeldChallenge, ParkedChallenge } from './store/store.ts';

/** Number of nonces that are recognised when the upstream issues them again. */
const REMEMBERED = 1_000;

/**
 * Counters of nonces with qop, by nonce (RFC 7616 §3.4). Some upstreams issue the same nonce within one millisecond, even
 * for two versions of a credential: it goes on with its count, so that no nc goes out twice.
 */
export class NonceCounters {
  /** The latest last. */
  readonly #counters = new Map<string, NonceCounter>();
  #byOpaque = false;

  /** From now on counts for each opaque, whatever its nonce: WEBrick does, whose nonce is the same for a second. */
  countByOpaque(): void {
    this.#byOpaque = true;
  }

  /** The counter for a challenge that was issued now, or that another process has answered so many times. */
  of({ nonce, opaque }: Challenge, count: number): NonceCounter {
    // No field value has a line feed, so no nonce is equal to the key of an opaque.
    const key = this.#byOpaque && opaque !== undefined ? `\n${opaque}` : nonce;
    const known = this.#counters.get(key);
    const counter = known ?? new NonceCounter();
    counter.isShared = known !== undefined;
    counter.last = Math.max(counter.last, count);
    this.#counters.set(key, counter);
    if (this.#counters.size > REMEMBERED) {
      for (const oldest of this.#counters.keys()) {
        this.#counters.delete(oldest);
        break;
      }
    }
    return counter;
  }
}

export interface NonceFactoryOptions {
  readonly credential: Credential;
  /** Those of other nonces of the same upstream; left out: there are none. */
  readonly counters?: NonceCounters;
  readonly clock: Clock;
  /** A new random cnonce. */
  readonly newCnonce: () => string;
}

/** Makes challenges into nonces that can be used, wherever they come from. */
export class NonceFactory {
  readonly #options: NonceFactoryOptions;
  readonly #counters: NonceCounters;

  constructor(options: NonceFactoryOptions) {
    this.#options = options;
    this.#counters = options.counters ?? new NonceCounters();
  }

  /** The upstream has just issued it. */
  issued(held: HeldChallenge): Nonce {
    return this.#make(held, 0, {});
  }

  /**
   * Another process obtained it, and counted on it if it has a count.
   * @throws GatewayError `credential-unavailable` when the credential, a stored hash, is not good for it
   */
  adopted(held: AgedChallenge | ParkedChallenge): Nonce {
    const owned = 'count' in held ? { cnonce: held.cnonce } : {};
    return this.#make(held, held.ageMs, { foreign: true, ...owned }, 'count' in held ? held.count : 0);
  }

  /** The upstream named it to be used after this one (nextnonce, RFC 7616 §3.5). */
  following(nonce: Nonce, nextnonce: string): Nonce {
    if (nextnonce === nonce.challenge.nonce) return nonce;
    const held = { challenge: withNonce(nonce.challenge, nextnonce), cookies: nonce.cookies };
    return this.#make(held, 0, { lane: nonce.lane });
  }

  /**
   * The upstream called an answer with this nonce stale, and sent this challenge. With the same nonce and another opaque
   * it shows that it has nothing against the nonce: it counts the answers to each opaque.
   */
  calledStale(nonce: Nonce, { nonce: next, opaque }: Challenge): void {
    const { challenge } = nonce;
    const isIssuedAgain = next === challenge.nonce && opaque !== undefined && opaque !== challenge.opaque;
    if (isIssuedAgain) this.#counters.countByOpaque();
  }

  #make(held: HeldChallenge, ageMs: number, origin: Partial<NonceOrigin>, count = 0): Nonce {
    const counter =
      held.challenge.qop.length === 0 ? new NonceCounter() : this.#counters.of(held.challenge, count);
    const { credential, clock, newCnonce } = this.#options;
    return new Nonce(held, credential, {
      cnonce: newCnonce(),
      obtainedAt: clock.now() - ageMs,
      counter,
      ...origin,
    });
  }
}
