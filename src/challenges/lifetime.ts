/** From this share of its life on a nonce is to be renewed. */
const AGING = 0.7;
/** Shorter lives are no lives: nonces that serve once are refused at any age, in milliseconds. */
const SHORTEST_MS = 500;
/** So many refusals in a row at an age that was fine before mean that the upstream has changed. */
const ENOUGH = 3;

/** How long an upstream's nonces live, learned from the ages at which they are accepted and refused. */
export class Lifetime {
  #ms: number | undefined;
  #oldestAccepted = 0;
  #tooEarly = 0;

  /** The youngest age at which a nonce was refused for its age; undefined: not known. */
  get ms(): number | undefined {
    return this.#ms;
  }

  /** The oldest age at which a nonce was accepted, in milliseconds. */
  get oldestAcceptedMs(): number {
    return this.#oldestAccepted;
  }

  /** Whether a nonce of this age is to be renewed soon. */
  isAging(ageMs: number): boolean {
    return this.#ms !== undefined && ageMs > AGING * this.#ms;
  }

  /** A nonce of this age was accepted. */
  accepted(ageMs: number): void {
    if (ageMs <= this.#oldestAccepted) return;
    this.#oldestAccepted = ageMs;
    this.#tooEarly = 0;
    if (this.#ms !== undefined && ageMs > this.#ms) this.#ms = undefined;
  }

  /** A nonce of this age, used before, was refused. */
  refused(ageMs: number): void {
    if (ageMs < SHORTEST_MS) return;
    if (ageMs < this.#oldestAccepted) {
      this.#tooEarly += 1;
      if (this.#tooEarly < ENOUGH) return;
      this.#oldestAccepted = 0;
      this.#ms = undefined;
    }
    this.#tooEarly = 0;
    this.#ms = Math.min(this.#ms ?? ageMs, ageMs);
  }

  /** What another process learned; counts as long as nothing speaks against it. */
  told(ms: number): void {
    if (ms > this.#oldestAccepted) this.#ms = Math.min(this.#ms ?? ms, ms);
  }
}
