/** Counts what is under way, and waits for its end. */
export class InFlight {
  #count = 0;
  #onIdle: (() => void)[] = [];

  get count(): number {
    return this.#count;
  }

  /** Something begins; the caller calls `leave` when it is over. */
  enter(): void {
    this.#count += 1;
  }

  leave(): void {
    this.#count -= 1;
    if (this.#count > 0 || this.#onIdle.length === 0) return;
    const waiting = this.#onIdle;
    this.#onIdle = [];
    for (const resolve of waiting) resolve();
  }

  /** Resolves when nothing is under way. */
  idle(): Promise<void> {
    if (this.#count === 0) return Promise.resolve();
    return new Promise((resolve) => this.#onIdle.push(resolve));
  }
}
