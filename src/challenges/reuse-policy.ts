import { NONCE_POLICIES, type NoncePolicy } from './store/store.ts';
import { TrialSchedule } from './trial-schedule.ts';

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

/** An attempt was accepted whose nonce had been accepted before. */
export interface AcceptedReuse {
  readonly counted: boolean;
  /** True if a higher count of the nonce had been accepted before it was sent. */
  readonly outOfOrder: boolean;
  /** True if the nonce tries the freer policy. */
  readonly onTrial: boolean;
}

export interface ReusePolicyOptions {
  /** `auto`: learned. */
  readonly policy: NoncePolicy | 'auto';
  /** Milliseconds on a clock that never goes back. */
  readonly now: () => number;
  /** Called after a step that was learned here. */
  readonly onStep: (policy: NoncePolicy, from: NoncePolicy) => void;
}

/**
 * Learns how the nonces of an upstream may be used from those that it accepts and refuses. Each step to a stricter
 * policy is followed by trials of the freer one.
 */
export class ReusePolicy {
  readonly #options: ReusePolicyOptions;
  readonly #trials = new TrialSchedule();
  #policy: NoncePolicy;
  /** True if the next nonce that is given back is tried the freer way. */
  #mayTry = false;
  /** First reuses that were refused, with none accepted in between. */
  #refusedReuses: number[] = [];
  /** Refusals of nonces that several requests used at once. */
  #refusedWhenContested: number[] = [];

  constructor(options: ReusePolicyOptions) {
    this.#options = options;
    this.#policy = options.policy === 'auto' ? 'shared' : options.policy;
  }

  get policy(): NoncePolicy {
    return this.#policy;
  }

  /** The time that a trial belongs to one process, in milliseconds. */
  get trialMs(): number {
    return this.#trials.delayMs;
  }

  /** Takes over the policy that another process learned, or this one before its start. */
  adopt(policy: NoncePolicy): void {
    if (this.#options.policy !== 'auto' || policy === this.#policy) return;
    this.#set(policy);
    if (policy === 'shared') this.#trials.stop();
    else this.#trials.adopted(this.#options.now());
  }

  /** Forgets everything: the challenge shows that it is another upstream. */
  forget(): void {
    if (this.#options.policy === 'auto') this.#set('shared');
    this.#trials.forget();
  }

  /** The upstream refused a count that is lower than one that it accepted: it wants them in order. */
  overtaken(): void {
    if (this.#policy === 'shared') this.#step(1);
  }

  /** A nonce was refused that had been accepted before. */
  refused(refusal: ReuseRefusal): void {
    if (this.#options.policy !== 'auto' || !isYoung(refusal)) return;
    const { accepted, contested, counted } = refusal;
    if (accepted === 1) this.#refusedReuses = this.#withStrike(this.#refusedReuses);
    if (contested && counted && this.#policy === 'shared') {
      this.#refusedWhenContested = this.#withStrike(this.#refusedWhenContested);
    }
    if (Math.max(this.#refusedReuses.length, this.#refusedWhenContested.length) >= STRIKES) this.#step(1);
  }

  /** A nonce was accepted again. */
  reused({ counted, outOfOrder, onTrial }: AcceptedReuse): void {
    this.#refusedReuses = [];
    if (this.#options.policy !== 'auto') return;
    if (this.#policy === 'single-use') this.#step(-1);
    // Without a count there is no order that requests could come out of.
    else if (this.#policy === 'exclusive' && (outOfOrder || (onTrial && !counted))) this.#step(-1);
  }

  /** True once in a while: the caller may let this process try the freer policy (`allowTrial`). */
  beginTrial(): boolean {
    const now = this.#options.now();
    if (!this.#trials.isDue(now)) return false;
    this.#trials.begin(now);
    return true;
  }

  allowTrial(): void {
    this.#mayTry = this.#policy !== 'shared';
  }

  /** True if the nonce that is given back now is to be tried the freer way; true once for each trial. */
  takeTrial(): boolean {
    const mayTry = this.#mayTry;
    this.#mayTry = false;
    return mayTry;
  }

  /** The upstream refused what was tried. */
  trialRefused(): void {
    this.#trials.failed(this.#options.now());
  }

  #withStrike(strikes: readonly number[]): number[] {
    const now = this.#options.now();
    return [...strikes.filter((at) => now - at < INTERVAL_MS), now];
  }

  #step(by: 1 | -1): void {
    const from = this.#policy;
    const policy = NONCE_POLICIES[NONCE_POLICIES.indexOf(from) + by];
    if (this.#options.policy !== 'auto' || policy === undefined) return;
    this.#set(policy);
    const now = this.#options.now();
    if (by === 1) this.#trials.learned(now);
    else if (policy === 'shared') this.#trials.stop();
    else this.#trials.begin(now);
    this.#options.onStep(policy, from);
  }

  #set(policy: NoncePolicy): void {
    this.#policy = policy;
    this.#mayTry = false;
    this.#refusedReuses = [];
    this.#refusedWhenContested = [];
  }
}

/** Too young for its age to be the reason, so that the reason may be the way in which it was used. */
function isYoung({ ageMs, lifetimeMs }: ReuseRefusal): boolean {
  return ageMs < YOUNG_MS && ageMs < EARLY * (lifetimeMs ?? YOUNG_MS / EARLY);
}
