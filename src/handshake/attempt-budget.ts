import { IDEMPOTENT, type UpstreamRequest } from './request.ts';

/** Authenticated attempts that the upstream answers, for one client request. */
const ATTEMPTS = 2;
/** Times that one client request asks for a challenge. */
const QUESTIONS = 4;

/**
 * Bounds the exchanges of one client request, however many versions of a credential it tries: two authenticated
 * attempts that it answers, and one repeat after a connection broke, so that at most three are sent. A rotation adds
 * two: with the version that the upstream has accepted in place of the first one, whose first nonce may be refused
 * like any other.
 */
export class AttemptBudget {
  #limit = ATTEMPTS;
  /** Authenticated attempts that the upstream answered. */
  answered = 0;
  /** True if the upstream called the nonce of every refused attempt stale. */
  onlyStale = true;
  /** True if the credential was found good after an attempt of this request was refused. */
  confirmed = false;
  /** Times that the upstream was asked for a challenge. */
  asked = 0;
  /** True if the request was sent again because its connection broke. */
  repeated = false;
  /** True if a body that is not kept was sent, so that the request cannot be sent again. */
  bodySent = false;

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
  }

  get mayAsk(): boolean {
    return this.asked < QUESTIONS;
  }

  /** True if a request that got no response may be sent again (RFC 9110 §9.2.2). */
  mayRepeat({ method }: UpstreamRequest): boolean {
    return !this.repeated && !this.bodySent && IDEMPOTENT.has(method);
  }
}
