/** A lock-out, throttling or a proxy in between can answer so before anybody looks at the credential. */
export const SAYS_NOTHING: ReadonlySet<number> = new Set([403, 429, 502, 503, 504]);

/**
 * What the upstream has made of one version of a credential. Answers can overtake each other, so what
 * counts is the order in which the attempts were sent.
 */
export class Standing {
  #sent = 0;
  #lastAccepted = 0;
  #lastRefused = 0;
  #refused = false;

  /** Whether the upstream refuses it, as far as is known. */
  get refused(): boolean {
    return this.#refused;
  }

  /** Whether the upstream has accepted it, and not refused it since. */
  get proven(): boolean {
    return this.#lastAccepted > 0 && !this.#refused;
  }

  /** An authenticated attempt goes out; gives its number. */
  attempt(): number {
    this.#sent += 1;
    return this.#sent;
  }

  /** False: the attempt went out before one that was refused, so it says nothing of how things are now. */
  accept(attempt: number): boolean {
    if (attempt < this.#lastRefused) return false;
    this.#lastAccepted = Math.max(this.#lastAccepted, attempt);
    this.#refused = false;
    return true;
  }

  /**
   * True: from now on it counts as refused. False: it did already, or an attempt that went out later was
   * accepted, so that it was something else that was refused.
   */
  refuse(attempt: number): boolean {
    if (attempt < this.#lastAccepted) return false;
    const news = !this.#refused;
    this.#lastRefused = attempt;
    this.#refused = true;
    return news;
  }

  /** The refusal is no reason any more not to try. */
  pardon(): void {
    this.#refused = false;
    this.#lastAccepted = 0;
  }
}
