/** Parts of a window: events leave it a part at a time. */
const PARTS = 10;

/** Counts the events of the last `windowMs` milliseconds, to a tenth of that time. */
export class RollingCount {
  readonly #partMs: number;
  readonly #parts = new Array<number>(PARTS).fill(0);
  /** Number of the part that is being counted. */
  #part = Number.NEGATIVE_INFINITY;
  #sum = 0;

  constructor(windowMs: number) {
    this.#partMs = windowMs / PARTS;
  }

  /** An event happens. `now`: on the clock of the process, in milliseconds, as everywhere here. */
  add(now: number): void {
    this.#advance(now);
    const index = this.#part % PARTS;
    this.#parts[index] = (this.#parts[index] ?? 0) + 1;
    this.#sum += 1;
  }

  sum(now: number): number {
    this.#advance(now);
    return this.#sum;
  }

  clear(): void {
    this.#parts.fill(0);
    this.#sum = 0;
  }

  /** Drops the parts that have left the window. */
  #advance(now: number): void {
    const part = Math.floor(now / this.#partMs);
    if (part - this.#part >= PARTS) {
      this.clear();
      this.#part = part;
      return;
    }
    while (this.#part < part) {
      this.#part += 1;
      const index = this.#part % PARTS;
      this.#sum -= this.#parts[index] ?? 0;
      this.#parts[index] = 0;
    }
  }
}
