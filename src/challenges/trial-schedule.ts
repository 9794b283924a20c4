/** When the first trial comes, in milliseconds after the lesson; twice as long after each one that fails. */
const FIRST_MS = 60_000;
const LONGEST_MS = 60 * 60_000;

/** When it is tried whether something that was learned about an upstream still holds. */
export class TrialSchedule {
  readonly #longestMs: number;
  #delayMs = FIRST_MS;
  #learnedAt = Number.NEGATIVE_INFINITY;
  #at = Number.POSITIVE_INFINITY;

  constructor(longestMs = LONGEST_MS) {
    this.#longestMs = longestMs;
  }

  /** Pause after the begin of a trial, in milliseconds. */
  get delayMs(): number {
    return this.#delayMs;
  }

  isDue(now: number): boolean {
    return now >= this.#at;
  }

  /** Something was learned here. The trial of a lesson that comes soon after another one is later, as after a failed trial. */
  learned(now: number): void {
    const isSoon = now - this.#learnedAt < this.#longestMs;
    this.#wait(now, isSoon ? 2 * this.#delayMs : FIRST_MS);
  }

  /** Another process learned something. */
  adopted(now: number): void {
    this.#at = Math.min(this.#at, now + this.#delayMs);
  }

  /** A trial begins. Without a result it is made again later. */
  begin(now: number): void {
    this.#at = now + this.#delayMs;
  }

  /** The trial found that the lesson holds. */
  failed(now: number): void {
    this.#wait(now, 2 * this.#delayMs);
  }

  /** Nothing is left to try. */
  stop(): void {
    this.#at = Number.POSITIVE_INFINITY;
  }

  /** Forgets everything: the challenge shows that it is another upstream. */
  forget(): void {
    this.stop();
    this.#delayMs = FIRST_MS;
    this.#learnedAt = Number.NEGATIVE_INFINITY;
  }

  #wait(now: number, delayMs: number): void {
    this.#delayMs = Math.min(delayMs, this.#longestMs);
    this.#learnedAt = now;
    this.#at = now + this.#delayMs;
  }
}
