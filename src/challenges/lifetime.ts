/** From this share of its life on a nonce is to be renewed. */
const AGING = 0.7;
/** Shorter lives are no lives: nonces that serve once are refused at any age, in milliseconds. */
export const SHORTEST_LIFE_MS = 500;
/** Longer than what was learned is remembered, in milliseconds: 30 days. */
export const LONGEST_LIFE_MS = 30 * 24 * 60 * 60_000;
/** So many refusals in a row at an age that was fine before mean that the upstream has changed. */
const ENOUGH = 3;
/** How far a time that a nonce carries may be off, in milliseconds … */
const INEXACT_MS = 1_000;
/** … and how much later than it a refusal still speaks for it, as a share. */
const SHORTLY_AFTER = 1.25;

/** What a nonce says of its own life, in milliseconds; undefined: nothing. */
export interface Hinted {
  readonly hintMs: number | undefined;
}

/**
 * How long an upstream's nonces live, learned from the ages at which they are accepted and refused. The
 * expiry that a nonce carries counts once a refusal came when it said, until another speaks against it.
 */
export class Lifetime {
  #ms: number | undefined;
  #oldestAccepted = 0;
  #tooEarly = 0;
  #hint: 'unproven' | 'right' | 'wrong' = 'unproven';

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

  /** Whether a nonce of this age is to be renewed soon. */
  isAging(ageMs: number, nonce: Hinted): boolean {
    const life = this.of(nonce);
    return life !== undefined && ageMs > AGING * life;
  }

  /** A nonce of this age was accepted. */
  accepted(ageMs: number, { hintMs }: Hinted): void {
    if (hintMs !== undefined && ageMs > hintMs + INEXACT_MS) this.#hint = 'wrong';
    if (ageMs <= this.#oldestAccepted) return;
    this.#oldestAccepted = ageMs;
    this.#tooEarly = 0;
    if (this.#ms !== undefined && ageMs > this.#ms) this.#ms = undefined;
  }

  /** A nonce of this age, used before, was refused. */
  refused(ageMs: number, { hintMs }: Hinted): void {
    if (ageMs < SHORTEST_LIFE_MS) return;
    if (ageMs < this.#oldestAccepted) {
      this.#tooEarly += 1;
      if (this.#tooEarly < ENOUGH) return;
      this.#oldestAccepted = 0;
      this.#ms = undefined;
    }
    this.#tooEarly = 0;
    this.#ms = Math.min(this.#ms ?? ageMs, ageMs, LONGEST_LIFE_MS);
    if (hintMs !== undefined) this.#judge(ageMs, hintMs);
  }

  /** What another process learned; counts as long as nothing speaks against it. */
  told(ms: number): void {
    const isLife = ms >= SHORTEST_LIFE_MS && ms <= LONGEST_LIFE_MS;
    if (isLife && ms > this.#oldestAccepted) this.#ms = Math.min(this.#ms ?? ms, ms);
  }

  /** It is another upstream. */
  forget(): void {
    this.#ms = undefined;
    this.#oldestAccepted = 0;
    this.#tooEarly = 0;
    this.#hint = 'unproven';
  }

  #judge(ageMs: number, hintMs: number): void {
    if (ageMs < hintMs - INEXACT_MS) this.#hint = 'wrong';
    else if (this.#hint === 'unproven' && ageMs < SHORTLY_AFTER * hintMs + INEXACT_MS) this.#hint = 'right';
  }
}
