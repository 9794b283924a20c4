import type { Clock } from '../base/clock.ts';
import { NONCE_POLICIES, type NoncePolicy } from './store/store.ts';

/** A nonce is young below this age, in milliseconds … */
const YOUNG_MS = 1_000;
/** … and below this share of its life. */
const EARLY = 0.5;
/** Events within the interval that move the policy one step. */
const STRIKES = 3;
const INTERVAL_MS = 30_000;

/** A refusal of a nonce that had been accepted before; one for each event. */
export interface ReuseRefusal {
  /** Age of the nonce when the request was sent, in milliseconds. */
  readonly ageMs: number;
  /** Attempts with the nonce that were accepted. */
  readonly accepted: number;
  /** True if other requests with the nonce were under way. */
  readonly contested: boolean;
  /** True if attempts carry a count, nc. */
  readonly counted: boolean;
  /** How long nonces live, in milliseconds; undefined: not known. */
  readonly lifetimeMs: number | undefined;
}

/**
 * Learns from the nonces that an upstream refuses how they may be used. Each step goes to a stricter policy; `forget`
 * alone goes back.
 */
export class ReusePolicy {
  policy: NoncePolicy;
  readonly #isLearned: boolean;
  readonly #clock: Clock;
  /** First reuses that were refused, with none accepted in between. */
  #refusedReuses: number[] = [];
  /** Refusals of nonces that several requests used at once. */
  #refusedWhenContested: number[] = [];

  /** `policy`: `auto` if it is learned. */
  constructor(policy: NoncePolicy | 'auto', clock: Clock) {
    this.#isLearned = policy === 'auto';
    this.#clock = clock;
    this.policy = policy === 'auto' ? 'shared' : policy;
  }

  /** Takes over the policy that another process learned, or this one before its start. */
  adopt(policy: NoncePolicy): void {
    if (this.#isLearned && policy !== this.policy) this.#set(policy);
  }

  forget(): void {
    if (this.#isLearned) this.#set('shared');
  }

  /**
   * The upstream refused a count that is lower than one that it accepted: it wants them in order. True if that makes a
   * step.
   */
  overtaken(): boolean {
    return this.policy === 'shared' && this.#step();
  }

  /** A nonce was refused that had been accepted before. True if that makes a step. */
  refused(refusal: ReuseRefusal): boolean {
    if (!this.#isLearned || !isYoung(refusal)) return false;
    const { accepted, contested, counted } = refusal;
    if (accepted === 1) this.#refusedReuses = this.#withStrike(this.#refusedReuses);
    if (contested && counted && this.policy === 'shared') {
      this.#refusedWhenContested = this.#withStrike(this.#refusedWhenContested);
    }
    const strikes = Math.max(this.#refusedReuses.length, this.#refusedWhenContested.length);
    return strikes >= STRIKES && this.#step();
  }

  /** A nonce was accepted that had been accepted before. */
  reused(): void {
    if (this.#refusedReuses.length > 0) this.#refusedReuses = [];
  }

  #withStrike(strikes: readonly number[]): number[] {
    const now = this.#clock.now();
    return [...strikes.filter((at) => now - at < INTERVAL_MS), now];
  }

  #step(): boolean {
    const policy = NONCE_POLICIES[NONCE_POLICIES.indexOf(this.policy) + 1];
    if (!this.#isLearned || policy === undefined) return false;
    this.#set(policy);
    return true;
  }

  #set(policy: NoncePolicy): void {
    this.policy = policy;
    this.#refusedReuses = [];
    this.#refusedWhenContested = [];
  }
}

/** Too young for its age to be the reason, so that the reason may be the way in which it was used. */
function isYoung({ ageMs, lifetimeMs }: ReuseRefusal): boolean {
  return ageMs < YOUNG_MS && ageMs < EARLY * (lifetimeMs ?? YOUNG_MS / EARLY);
}
