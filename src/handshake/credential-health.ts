import { credentialRefused } from './errors.ts';
import type { Refusal } from './exchange.ts';

/** Statuses of a lock-out, throttling or an intermediary, which can come before the credential is looked at. */
export const SAYS_NOTHING: ReadonlySet<number> = new Set([403, 429, 502, 503, 504]);

/** A server can respond so to a method of the gateway's own choice before it looks at the credential. */
export const METHOD_REFUSED: ReadonlySet<number> = new Set([405, 501]);

/**
 * Health of one version of a credential at the upstream: unknown, accepted or refused. Responses can overtake
 * each other, so the order in which the attempts were sent counts.
 */
export class CredentialHealth {
  /** True while the gateway finds out whether the upstream accepts it, so that no attempt of a client goes out. */
  inDoubt = false;
  /** True if the upstream refuses it, as far as is known. */
  refused = false;
  /** True if the upstream responded with what says nothing, as to a lock-out, after it had refused it last. */
  isHeld = false;
  /** True if it was refused and not accepted since, whatever was reset. */
  #wasRefused = false;
  #sent = 0;
  #lastAccepted = 0;
  #lastRefused = 0;
  #resetAfter = 0;

  /** Refuses attempts that have not left while the upstream refuses it. */
  readonly refusal: Refusal = () => (this.refused ? credentialRefused() : undefined);

  /** True if the upstream has accepted it, and not refused it since. */
  get accepted(): boolean {
    return this.#lastAccepted > 0 && !this.refused;
  }

  /** Numbers an authenticated attempt that goes out. */
  attempt(): number {
    this.#sent += 1;
    return this.#sent;
  }

  /** False: the attempt went out before one that was refused, so it says nothing of how things are now. */
  accept(attempt: number): boolean {
    if (attempt < this.#lastRefused) return false;
    this.#lastAccepted = Math.max(this.#lastAccepted, attempt);
    this.refused = false;
    this.isHeld = false;
    this.#wasRefused = false;
    return true;
  }

  /** The upstream responded with one of `SAYS_NOTHING`: a version that it refused before is no better known now. */
  noteNothing(): void {
    this.isHeld = this.#wasRefused;
  }

  /**
   * True: from now on it counts as refused. False: it did already, or an attempt that went out later was
   * accepted, so that something else was refused.
   */
  refuse(attempt: number): boolean {
    if (attempt < this.#lastAccepted) return false;
    const news = !this.refused;
    this.#lastRefused = attempt;
    this.refused = true;
    this.#wasRefused = true;
    return news;
  }

  /** True if what became of this attempt says nothing now: a later one was accepted, or a reset came after it. */
  isSuperseded(attempt: number): boolean {
    return attempt < this.#lastAccepted || attempt <= this.#resetAfter;
  }

  /** Makes it unknown, so that one request tries it again. */
  reset(): void {
    this.refused = false;
    this.isHeld = false;
    this.#lastAccepted = 0;
    this.#resetAfter = this.#sent;
  }
}
