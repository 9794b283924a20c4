const SECOND_MS = 1000;

/** Times as records have them (RFC 3339, UTC, with milliseconds). Formatting each whole costs as much as half a record. */
export class Timestamp {
  #milliseconds = Number.NaN;
  #second = Number.NaN;
  /** Up to the point before the milliseconds. */
  #start = '';
  #text = '';

  /** `at`: Unix time in milliseconds. Quick for one that comes again, or is of the second of the one before. */
  of(at: number): string {
    if (at === this.#milliseconds) return this.#text;
    this.#milliseconds = at;
    const second = Math.floor(at / SECOND_MS);
    if (second !== this.#second) {
      this.#second = second;
      this.#start = new Date(at).toISOString().slice(0, -'000Z'.length);
    }
    this.#text = `${this.#start}${String(at % SECOND_MS).padStart(3, '0')}Z`;
    return this.#text;
  }
}
