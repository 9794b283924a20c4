/** From this share of its life on a nonce is to be renewed. */
const AGING = 0.7;
/** Shorter lives are no lives: nonces that serve once are refused at any age, in milliseconds. */
export const SHORTEST_LIFE_MS = 500;
/** Longer than what was learned is remembered, in milliseconds: 30 days. */
export const LONGEST_LIFE_MS = 30 * 24 * 60 * 60_000;
/** Refusals in a row, at an age that was accepted before, after which the upstream counts as changed. */
const ENOUGH = 3;

/** How long an upstream's nonces live, learned from the ages at which they are accepted and refused. */
export class Lifetime {
  /** The youngest age at which a nonce was refused for its age; undefined: not known. */
  ms: number | undefined;
  #oldestAccepted = 0;
  #tooEarly = 0;

  /** True if a nonce of this age is to be renewed soon. */
  isAging(ageMs: number): boolean {
    return this.ms !== undefined && ageMs > AGING * this.ms;
  }

  /** A nonce of this age was accepted. */
  accepted(ageMs: number): void {
    if (ageMs <= this.#oldestAccepted) return;
    this.#oldestAccepted = ageMs;
    this.#tooEarly = 0;
    if (this.ms !== undefined && ageMs > this.ms) this.ms = undefined;
  }

  /** A nonce of this age, used before, was refused. */
  refused(ageMs: number): void {
    if (ageMs < SHORTEST_LIFE_MS) return;
    if (ageMs < this.#oldestAccepted) {
      this.#tooEarly += 1;
      if (this.#tooEarly < ENOUGH) return;
      this.forget();
    }
    this.#tooEarly = 0;
    this.ms = Math.min(this.ms ?? ageMs, ageMs, LONGEST_LIFE_MS);
  }

  /** Takes over the lifetime that another process learned, unless an older nonce was accepted here. */
  adopt(ms: number | undefined): void {
    const isLife = ms === undefined || (ms >= SHORTEST_LIFE_MS && ms <= LONGEST_LIFE_MS);
    if (isLife && (ms === undefined || ms > this.#oldestAccepted)) this.ms = ms;
  }

  forget(): void {
    this.ms = undefined;
    this.#oldestAccepted = 0;
    this.#tooEarly = 0;
  }
}
