/** So many nonces of other processes refused, with none accepted in between, mean that they are bound to them. */
const ENOUGH = 3;
/** Only what is younger than this share of a life is not refused for its age. */
const EARLY = 0.5;
/** What is taken for a life while none is known, in milliseconds. */
const SHORT_LIFE_MS = 60_000;

/**
 * Whether a nonce serves another process than the one that obtained it. Some upstreams bind it to the
 * address that asked for it (Tomcat does), and replicas may leave from several.
 */
export class Portability {
  #portable = true;
  #refused = 0;

  get portable(): boolean {
    return this.#portable;
  }

  /** A nonce of another process was accepted here. */
  accepted(): void {
    this.#refused = 0;
  }

  /** A nonce of another process was refused the first time that it was used here. */
  refused(ageMs: number, lifetimeMs = SHORT_LIFE_MS): void {
    if (ageMs > EARLY * lifetimeMs) return;
    this.#refused += 1;
    if (this.#refused >= ENOUGH) this.#portable = false;
  }

  /** Another process found that they are bound. */
  told(): void {
    this.#portable = false;
  }

  /** It is another upstream. */
  forget(): void {
    this.#portable = true;
    this.#refused = 0;
  }
}
