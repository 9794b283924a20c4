import type { RetryReason } from '../metrics/metrics.ts';
import type { Lost } from './exchange.ts';
import { IDEMPOTENT } from './request.ts';

/** How often requests may be sent again. */
export interface Retries {
  /** The most for one request. */
  readonly attempts: number;
  /** Takes a retry from what all requests share, and counts it; false: none is left. */
  take(reason: RetryReason): boolean;
  /** Counts a retry that needs no permission. */
  count(reason: RetryReason): void;
}

/** One repeat for each request. */
const ONE_REPEAT: Retries = { attempts: 1, take: () => true, count() {} };

/** Authenticated attempts that the upstream answers, for one client request. */
const ATTEMPTS = 2;
/** Times that one client request asks for a challenge. */
const QUESTIONS = 4;

/**
 * Bounds the exchanges of one client request, however many versions of a credential and addresses it tries: two
 * authenticated attempts that get a response, and the repeats of those whose connection broke. A rotation adds two: with
 * the version that the upstream has accepted in place of the first one, whose first nonce may be refused like any other.
 * A candidate that was tried out in vain adds one, if the nonce of the version in use is refused after it.
 */
export class AttemptBudget {
  readonly #retries: Retries;
  #limit = ATTEMPTS;
  #owesAttempt = false;
  /** Authenticated attempts that the upstream answered. */
  answered = 0;
  /** True if the upstream called the nonce of every refused attempt stale. */
  onlyStale = true;
  /** True if the credential was found good after an attempt of this request was refused. */
  confirmed = false;
  /** Times that the upstream was asked for a challenge. */
  asked = 0;
  /** Times that the request was sent again because its connection broke. */
  #repeats = 0;
  /** The last exchange that got no response; undefined: none, or it has been made up for. */
  #lost: Lost | undefined;
  /** True if a body that is not kept was sent, so that the request cannot be sent again. */
  bodySent = false;

  constructor(retries: Retries = ONE_REPEAT) {
    this.#retries = retries;
  }

  get limit(): number {
    return this.#limit;
  }

  get spent(): boolean {
    return this.answered >= this.#limit || this.bodySent;
  }

  /** True if only a rotation can add attempts. */
  get noneLeft(): boolean {
    return this.answered >= this.#limit && !this.bodySent;
  }

  /** Another version of the credential has just been accepted; counts once. */
  extendForRotation(): void {
    this.#limit = 2 * ATTEMPTS;
    this.#owesAttempt = false;
  }

  /** The request gave an attempt to a candidate, in vain. */
  oweAttempt(): void {
    this.#owesAttempt = true;
  }

  /** Gives that attempt back, once; false: there is none. */
  takeOwed(): boolean {
    if (!this.#owesAttempt) return false;
    this.#owesAttempt = false;
    this.#limit += 1;
    return true;
  }

  get mayAsk(): boolean {
    return this.asked < QUESTIONS;
  }

  /** True if an exchange may only go out on a new connection. */
  get needsFreshConnection(): boolean {
    return this.#repeats > 0;
  }

  /** Takes the right to send a request again at the same address, whose exchange got no response. */
  takeRepeat(request: { readonly method: string }, lost: Lost): boolean {
    this.#lost = lost;
    if (!lost.broke || !this.#isRepeatable(request, lost)) return false;
    if (lost.reused && this.#repeats === 0) this.#retries.count('stale_connection');
    else if (this.#repeats >= this.#retries.attempts || !this.#retries.take('connection_broke')) return false;
    this.#repeats += 1;
    this.#lost = undefined;
    return true;
  }

  /** Takes the right to send a request, which ended with this error, to another address. */
  takeMove(request: { readonly method: string }, error: unknown): boolean {
    const lost = this.#lost;
    if (lost === undefined || lost.error !== error || !this.#isRepeatable(request, lost)) return false;
    this.#lost = undefined;
    // A request that was not sent is no further load.
    if (lost.sent) return this.#retries.take('next_address');
    this.#retries.count('next_address');
    return true;
  }

  /** RFC 9110 §9.2.2: the upstream may have acted on a request that it got. */
  #isRepeatable({ method }: { readonly method: string }, { sent }: Lost): boolean {
    return !this.bodySent && (!sent || IDEMPOTENT.has(method));
  }
}
