const SECOND_MS = 1000;

/** The time as records have it (RFC 3339, UTC, with milliseconds). Formatting it whole costs as much as half a record. */
export class Timestamp {
  readonly #wallTime: () => number;
  #milliseconds = Number.NaN;
  #second = Number.NaN;
  /** Up to the point before the milliseconds. */
  #start = '';
  #text = '';

  /** `wallTime`: Unix time in milliseconds. */
  constructor(wallTime: () => number) {
    this.#wallTime = wallTime;
  }

  now(): string {
    const now = this.#wallTime();
    if (now === this.#milliseconds) return this.#text;
    this.#milliseconds = now;
    const second = Math.floor(now / SECOND_MS);
    if (second !== this.#second) {
      this.#second = second;
      this.#start = new Date(now).toISOString().slice(0, -'000Z'.length);
    }
    this.#text = `${this.#start}${String(now % SECOND_MS).padStart(3, '0')}Z`;
    return this.#text;
  }
}
