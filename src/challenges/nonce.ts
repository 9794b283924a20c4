import { type Credential, type PreparedAnswer, prepareAnswer } from '../digest/authorization.ts';
import type { Challenge } from '../digest/challenge.ts';
import type { HeldChallenge, ParkedChallenge } from './store.ts';

/** RFC 7616 §3.4: nc is eight hex digits. */
const LAST_COUNT = 0xffffffff;

/** Nonces that continue one another by nextnonce: an upstream may keep one state for them all, by opaque. */
export interface Lane {
  /** Requests under way with one of these nonces. */
  underWay: number;
}

/** Where a nonce comes from, beside its challenge. */
export interface NonceOrigin {
  readonly cnonce: string;
  readonly obtainedAt: number;
  /** The last nc that a former owner used. */
  readonly count?: number;
  /** The lane of the nonce that named this one. */
  readonly lane?: Lane;
  /** Whether another process obtained it. */
  readonly foreign?: boolean;
  /** How long it says that it lives, in milliseconds; undefined: it says nothing. */
  readonly hintMs: number | undefined;
}

/** One challenge in use by this process: what answers it, and the count of answers. */
export class Nonce implements HeldChallenge {
  readonly challenge: Challenge;
  readonly cookies: readonly string[];
  readonly answer: PreparedAnswer;
  /** One for the life of the nonce: with -sess it is part of A1 (RFC 7616 §3.4.2). */
  readonly cnonce: string;
  readonly lane: Lane;
  /** When the upstream issued it, on this process's clock. */
  readonly obtainedAt: number;
  readonly foreign: boolean;
  readonly hintMs: number | undefined;
  /** Clients' requests that it served. */
  uses = 0;
  /** Whether a younger one was asked for to take its place. */
  renewed = false;
  /** No request takes it any more, whatever becomes of those under way. */
  retired = false;
  #count: number;

  constructor(held: HeldChallenge, credential: Credential, origin: NonceOrigin) {
    this.challenge = held.challenge;
    this.cookies = held.cookies;
    this.cnonce = origin.cnonce;
    this.lane = origin.lane ?? { underWay: 0 };
    this.obtainedAt = origin.obtainedAt;
    this.foreign = origin.foreign ?? false;
    this.hintMs = origin.hintMs;
    this.#count = origin.count ?? 0;
    this.answer = prepareAnswer(held.challenge, credential, origin.cnonce);
  }

  /** As it goes to the next owner, who counts on from here. */
  parked(now: number): ParkedChallenge {
    const { challenge, cookies, cnonce } = this;
    return { challenge, cookies, cnonce, count: this.#count, ageMs: now - this.obtainedAt };
  }

  /** Without qop there is no count, so nothing is lost when several processes use the nonce. */
  get shareable(): boolean {
    return this.answer.qop === undefined;
  }

  /**
   * Whether the upstream holds this challenge in the state that the nonce had, named by opaque. Apache does,
   * for one-time nonces and to check nc: whoever else comes there first makes it refuse a right answer.
   */
  sharesStateWith({ opaque }: Challenge): boolean {
    return opaque !== undefined && opaque === this.challenge.opaque;
  }

  /** A request goes out with this nonce. */
  begin(): void {
    this.lane.underWay += 1;
  }

  /** It is over; true: others of the lane are still under way. */
  end(): boolean {
    this.lane.underWay -= 1;
    return this.lane.underWay > 0;
  }

  get exhausted(): boolean {
    return this.#count >= LAST_COUNT;
  }

  /** The next nc, never given twice. */
  count(): number {
    this.#count += 1;
    return this.#count;
  }
}
