import { TrialSchedule } from './trial-schedule.ts';

/** From this share of its life on a nonce is to be renewed. */
const AGING = 0.7;
/** Shorter lives are no lives: nonces that serve once are refused at any age, in milliseconds. */
export const SHORTEST_LIFE_MS = 500;
/** Longer than what was learned is remembered, in milliseconds: 30 days. */
export const LONGEST_LIFE_MS = 30 * 24 * 60 * 60_000;
/** Refusals in a row, at an age that was accepted before, after which the upstream counts as changed. */
const ENOUGH = 3;
/** How far a time that a nonce carries may be off, in milliseconds … */
const INEXACT_MS = 1_000;
/** … and how much later than it a refusal still speaks for it, as a share. */
const SHORTLY_AFTER = 1.25;

/** From this multiple of a life on a nonce that is accepted proves that nonces live longer. */
const OUTLIVED = 1.05;
/** A lesson that has proved true is tried once a day at last, in milliseconds. */
const LONGEST_TRIAL_MS = 24 * 60 * 60_000;

/** Lifetime that a nonce carries, in milliseconds; undefined: none. */
export interface Hinted {
  readonly hintMs: number | undefined;
}

/**
 * How long an upstream's nonces live, learned from the ages at which they are accepted and refused. The
 * expiry that a nonce carries counts once a refusal came when it said, until another speaks against it.
 */
export class Lifetime {
  readonly #now: () => number;
  readonly #trials = new TrialSchedule(LONGEST_TRIAL_MS);
  #ms: number | undefined;
  /** False: one refusal alone taught it, and the upstream did not say that age was the reason. */
  #confirmed = false;
  #oldestAccepted = 0;
  #tooEarly = 0;
  #hint: 'unproven' | 'right' | 'wrong' = 'unproven';

  /** `now`: milliseconds on a clock that never goes back. */
  constructor(now: () => number) {
    this.#now = now;
  }

  /** The youngest age at which a nonce was refused for its age; undefined: not known. */
  get ms(): number | undefined {
    return this.#ms;
  }

  /** The oldest age at which a nonce was accepted, in milliseconds. */
  get oldestAcceptedMs(): number {
    return this.#oldestAccepted;
  }

  /** How long this nonce lives, in milliseconds; undefined: not known. */
  of({ hintMs }: Hinted): number | undefined {
    return this.#hint === 'right' && hintMs !== undefined ? hintMs : this.#ms;
  }

  /** True if a nonce of this age is to be renewed soon. */
  isAging(ageMs: number, nonce: Hinted): boolean {
    const life = this.of(nonce);
    return life !== undefined && ageMs > AGING * life;
  }

  /** The age at which a nonce that is older than nonces live is worth a trial, in milliseconds. */
  trialAge(nonce: Hinted): number {
    return OUTLIVED * (this.of(nonce) ?? Number.POSITIVE_INFINITY);
  }

  /**
   * True once in a while, and soon after a lesson of one refusal: one request is to try a nonce that is older than
   * nonces live, as far as is known.
   */
  takeTrial(): boolean {
    if (this.#ms === undefined || !(this.#trials.isDue(this.#now()) || !this.#confirmed)) return false;
    this.#confirmed = true;
    this.#trials.begin(this.#now());
    return true;
  }

  /** A nonce of this age was accepted. */
  accepted(ageMs: number, { hintMs }: Hinted): void {
    if (hintMs !== undefined && ageMs > hintMs + INEXACT_MS) this.#hint = 'wrong';
    if (ageMs <= this.#oldestAccepted) return;
    this.#oldestAccepted = ageMs;
    this.#tooEarly = 0;
    if (this.#ms === undefined || ageMs <= this.#ms) return;
    this.#ms = undefined;
    this.#trials.stop();
    // A nonce that was refused before its own expiry was refused for another reason.
    if (hintMs === undefined || ageMs <= hintMs) this.#hint = 'unproven';
  }

  /** A nonce of this age, used before, was refused. `stale`: the upstream says that it expired. */
  refused(ageMs: number, { hintMs }: Hinted, stale = false): void {
    if (ageMs < SHORTEST_LIFE_MS) return;
    if (ageMs < this.#oldestAccepted) {
      this.#tooEarly += 1;
      if (this.#tooEarly < ENOUGH) return;
      this.#oldestAccepted = 0;
      this.#ms = undefined;
    }
    this.#tooEarly = 0;
    const isNews = this.#ms === undefined || ageMs < this.#ms;
    this.#ms = Math.min(this.#ms ?? ageMs, ageMs, LONGEST_LIFE_MS);
    if (isNews) {
      this.#confirmed = stale;
      this.#trials.learned(this.#now());
    }
    if (hintMs !== undefined) this.#judge(ageMs, hintMs);
  }

  /** The upstream refused the nonce that was tried. */
  trialRefused(): void {
    this.#trials.failed(this.#now());
  }

  /** Takes over the lifetime that another process learned, unless an older nonce was accepted here. */
  adopt(ms: number | undefined): void {
    if (ms === this.#ms) return;
    const isLife = ms === undefined || (ms >= SHORTEST_LIFE_MS && ms <= LONGEST_LIFE_MS);
    if (!isLife || (ms !== undefined && ms <= this.#oldestAccepted)) return;
    this.#ms = ms;
    this.#confirmed = true;
    if (ms === undefined) this.#trials.stop();
    else this.#trials.adopted(this.#now());
  }

  /** Forgets everything: the challenge shows that it is another upstream. */
  forget(): void {
    this.#ms = undefined;
    this.#oldestAccepted = 0;
    this.#tooEarly = 0;
    this.#hint = 'unproven';
    this.#trials.forget();
  }

  #judge(ageMs: number, hintMs: number): void {
    if (ageMs < hintMs - INEXACT_MS) this.#hint = 'wrong';
    else if (this.#hint === 'unproven' && ageMs < SHORTLY_AFTER * hintMs + INEXACT_MS) this.#hint = 'right';
  }
}
