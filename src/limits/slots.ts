import { partOf } from './store.ts';

/** Requests under way: counted always, and limited when a limit is set. */
export class Slots {
  #limit: number;
  #share = 1;
  /** Under way in this process. Only the slots change it. */
  inFlight = 0;
  #othersInFlight = 0;
  /** Requests that this process may have under way; fewer than it has while all together exceed the limit. */
  #allowed: number;

  constructor(limit: number | undefined) {
    this.#limit = limit ?? Number.POSITIVE_INFINITY;
    this.#allowed = this.#limit;
  }

  get open(): boolean {
    return this.room >= 1;
  }

  /** Requests that may begin; not rounded down. */
  get room(): number {
    return Math.min(this.#allowed, this.#limit) - this.inFlight;
  }

  take(): void {
    this.inFlight += 1;
  }

  release(): void {
    this.inFlight -= 1;
  }

  /** Free in all processes. */
  get free(): number {
    return Math.max(0, this.#limit - this.#othersInFlight - this.inFlight);
  }

  get elsewhere(): boolean {
    return !this.open && this.free >= 1;
  }

  /** True if no more than half is in use, here and in all processes. */
  get isAmple(): boolean {
    return 2 * this.inFlight <= this.#allowed && 2 * this.free >= this.#limit;
  }

  /** Takes over the requests under way elsewhere, as of the report with `reported` requests here. */
  accept(othersInFlight: number, share: number, reported: number): void {
    this.#share = share;
    this.#othersInFlight = othersInFlight;
    this.#allowed = reported + partOf(this.#limit - othersInFlight - reported, share);
  }

  goAlone(share: number): void {
    this.#share = share;
    this.#othersInFlight = 0;
    this.#allowed = Math.max(1, this.#limit * share);
  }

  /** Changes the limit; requests under way go on. */
  change(limit: number | undefined): void {
    this.#limit = limit ?? Number.POSITIVE_INFINITY;
    this.accept(this.#othersInFlight, this.#share, this.inFlight);
  }
}
