import { partOf } from './store.ts';

const DAY_MS = 86_400_000;

/** This process's share of a daily limit. Days are those of UTC. */
export class Quota {
  #limit: number;
  #share: number;
  /** By the clock of this process. */
  #today: number;
  // Only the quota changes these.
  /** Of `used`: a store whose clock differs may have another day. */
  day: number;
  /** Requests of `day` in all processes, as far as known. */
  used = 0;
  /** Requests of today in this process, by its clock. */
  own = 0;
  /** The day that `#today` was before, to which the clock may go back, and the requests of this process then. */
  #before = { day: Number.NaN, own: 0 };
  /** Requests that this process may still admit. */
  #left: number;

  /** `epoch`: milliseconds since 1970, as everywhere here. */
  constructor(limit: number, share: number, epoch: number) {
    this.#limit = limit;
    this.#share = share;
    this.#today = dayOf(epoch);
    this.day = this.#today;
    this.#left = partOf(limit, share);
  }

  /** Starts a new day if `epoch` is in one. */
  roll(epoch: number): void {
    const today = dayOf(epoch);
    if (today === this.#today) return;
    const own = this.#before.day === today ? this.#before.own : 0;
    this.#before = { day: this.#today, own: this.own };
    this.#today = today;
    this.own = own;
    if (this.day === today) return;
    this.day = today;
    this.used = own;
    this.#left = partOf(this.#limit - own, this.#share);
  }

  get open(): boolean {
    // Whatever a store says, one process admits no more than the limit.
    return this.#left >= 1 && this.own < this.#limit;
  }

  spend(): void {
    this.own += 1;
    this.used += 1;
    this.#left -= 1;
  }

  /** Requests left today in all processes. */
  get remaining(): number {
    return Math.max(0, this.#limit - this.used);
  }

  get elsewhere(): boolean {
    return !this.open && this.remaining >= 1;
  }

  /** True if no more than half is used up, here and in all processes. */
  get isAmple(): boolean {
    return 2 * this.#left >= partOf(this.#limit, this.#share) && 2 * this.remaining >= this.#limit;
  }

  /** Whole seconds until the day ends. */
  static secondsLeft(epoch: number): number {
    return Math.ceil((DAY_MS - (epoch % DAY_MS)) / 1000);
  }

  /** Takes over the usage of all processes on a day, which does not include `pending` requests. */
  accept(used: number, day: number, share: number, pending: number): void {
    this.#share = share;
    this.day = day;
    this.used = used + pending;
    this.#left = partOf(this.#limit - used, share) - pending;
  }

  goAlone(share: number): void {
    this.#share = share;
    if (this.day !== this.#today) this.used = this.own;
    this.day = this.#today;
    this.#left = partOf(this.#limit - this.used, share);
  }

  /** Changes the limit; the usage so far still counts. */
  change(limit: number): void {
    this.#limit = limit;
    this.#left = partOf(limit - this.used, this.#share);
  }
}

/** Days since 1970, UTC. `epoch`: milliseconds since then. */
export function dayOf(epoch: number): number {
  return Math.floor(epoch / DAY_MS);
}
