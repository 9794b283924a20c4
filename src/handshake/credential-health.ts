import { putBounded } from '../base/maps.ts';
import { splitTarget } from '../policy/path.ts';
import { credentialRefused } from './errors.ts';
import type { Refusal } from './exchange.ts';

/** Statuses of a lock-out, throttling or an intermediary, which can come before the credential is looked at. */
export const SAYS_NOTHING: ReadonlySet<number> = new Set([403, 429, 502, 503, 504]);

/** A server can respond so to a method of the gateway's own choice before it looks at the credential. */
export const METHOD_REFUSED: ReadonlySet<number> = new Set([405, 501]);

/** Paths that are remembered, and characters of each. */
const MAX_PATHS = 256;
const MAX_PATH_LENGTH = 1_024;

/** A target with a method. */
interface Written {
  readonly method: string;
  readonly target: string;
}

/**
 * Paths where the upstream wants authentication for a body although it serves HEAD without, as where only writing is
 * restricted.
 */
class GuardedWrites {
  readonly #known = new Map<string, true>();

  add(written: Written): void {
    putBounded(this.#known, keyOf(written), true, MAX_PATHS);
  }

  /**
   * The methods to ask with after a response without a challenge to the first of them. Where HEAD is served, the method would
   * be, too, and act as if its body were empty, unless it is known to want authentication.
   */
  methodsAfter(asked: readonly string[], written: Written, status: number): readonly string[] {
    const left = asked.slice(1);
    const key = keyOf(written);
    if (asked[0] === written.method) this.#known.delete(key);
    const isServed = status >= 200 && status < 300;
    return isServed && !this.#known.has(key) ? [] : left;
  }
}

function keyOf({ method, target }: Written): string {
  return `${method} ${splitTarget(target).path.slice(0, MAX_PATH_LENGTH)}`;
}

/** After so many of these in a row, a version that was refused before is kept back until an attempt is due. */
const MAX_NOTHINGS = 2;

/**
 * Health of one version of a credential at the upstream: unknown, accepted or refused. Responses can overtake
 * each other, so the order in which the attempts were sent counts.
 */
export class CredentialHealth {
  /** True while the gateway finds out whether the upstream accepts it, so that no attempt of a client goes out. */
  inDoubt = false;
  /** True if a question refused it since it is in doubt, so that no attempt of a client goes out before the verdict. */
  refusedInDoubt = false;
  /** True if the upstream refuses it, as far as is known. */
  refused = false;
  /** True if it was refused and not accepted since, whatever was reset. */
  wasRefused = false;
  /** Responses to clients, since nothing is known of it, that did not show whether the upstream accepts it. */
  inconclusive = 0;
  /** Paths where it is wanted for bodies only. */
  readonly guardedWrites = new GuardedWrites();
  /** True if a nonce that a HEAD obtained was called stale for a body: some servers bind a nonce to its method. */
  headNonceStale = false;
  /** Responses that say nothing since it was refused and reset. */
  #nothings = 0;
  #sent = 0;
  #lastAccepted = 0;
  #lastRefused = 0;
  #resetAfter = 0;

  /** Refuses attempts that have not left while the upstream refuses it. */
  readonly refusal: Refusal = () => (this.refused ? credentialRefused() : undefined);

  /** True if no attempt is sent with it before one is due. */
  get isKeptBack(): boolean {
    return this.refused || this.isHeld;
  }

  /** True if the upstream has accepted it, and not refused it since. */
  get accepted(): boolean {
    return this.#lastAccepted > 0 && !this.refused;
  }

  /** Numbers an authenticated attempt that goes out. */
  attempt(): number {
    this.#sent += 1;
    return this.#sent;
  }

  /** The upstream accepted it, which says nothing of how things are now if it went out before one that was refused. */
  accept(attempt: number): void {
    if (attempt < this.#lastRefused) return;
    this.#lastAccepted = Math.max(this.#lastAccepted, attempt);
    this.refused = false;
    this.wasRefused = false;
    this.inconclusive = 0;
    this.#nothings = 0;
  }

  /** The upstream responded with one of `SAYS_NOTHING`: a version that it refused before is no better known now. */
  noteNothing(): void {
    if (this.wasRefused) this.#nothings += 1;
  }

  /**
   * True if it was refused, and the upstream responded several times then with what says nothing, as in a lock-out: one
   * such response comes from a server that restarts, too.
   */
  get isHeld(): boolean {
    return this.#nothings >= MAX_NOTHINGS;
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
    this.wasRefused = true;
    return news;
  }

  /** True if what became of this attempt says nothing now: a later one was accepted, or a reset came after it. */
  isSuperseded(attempt: number): boolean {
    return attempt < this.#lastAccepted || attempt <= this.#resetAfter;
  }

  /** Makes it unknown, so that one request tries it again. */
  reset(): void {
    this.refused = false;
    this.inconclusive = 0;
    this.#nothings = 0;
    this.#lastAccepted = 0;
    this.#resetAfter = this.#sent;
  }
}
