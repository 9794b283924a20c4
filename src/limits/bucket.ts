import { partOf, type RateSettings } from './store.ts';

/** More than this part of the bucket has to be elsewhere before it is asked for ahead of time. */
const WORTH_ASKING = 1 / 8;

/** Rounding error of added fractions. */
const ROUNDING = 1e-9;

/** This process's share of a token bucket, and the whole bucket as far as known. */
export class Bucket {
  #settings: RateSettings;
  #share: number;
  #tokens: number;
  /** Tokens in the whole bucket, as far as known. Only the bucket changes it. */
  pool: number;
  #at: number;
  /** Tokens if this process were the only one: an upper bound, whatever a store says. */
  #own: number;
  /** The usage of other processes is unknown, so the whole is estimated from the share. */
  #alone = true;

  constructor(settings: RateSettings, share: number, now: number) {
    this.#settings = settings;
    this.#share = share;
    this.pool = settings.burst;
    this.#own = settings.burst;
    this.#tokens = this.#capacity;
    this.#at = now;
  }

  get #capacity(): number {
    return Math.max(1, this.#settings.burst * this.#share);
  }

  /** Adds the tokens of the time since the last call. */
  refill(now: number): void {
    const { perSecond, burst } = this.#settings;
    const came = ((now - this.#at) / 1000) * perSecond;
    this.#at = now;
    this.#own = Math.min(burst, this.#own + came);
    this.#tokens = Math.min(this.#capacity, this.#tokens + came * this.#share);
    this.pool = this.#alone ? this.#tokens / this.#share : Math.min(burst, this.pool + came);
  }

  /** True if one more request may pass; as of the last `refill`, like all that follow. */
  get open(): boolean {
    return this.room >= 1;
  }

  /** Requests that may pass; not rounded down. */
  get room(): number {
    return Math.min(this.#tokens, this.#own) + ROUNDING;
  }

  /** True if tokens that come are lost while this process does not spend any. */
  get isFull(): boolean {
    return this.#tokens + ROUNDING >= this.#capacity;
  }

  spend(): void {
    this.#tokens -= 1;
    this.#own -= 1;
    this.pool -= this.#alone ? 1 / this.#share : 1;
  }

  /** Tokens missing in the share of this process. */
  get missing(): number {
    return Math.max(0, this.#capacity - this.#tokens);
  }

  /** True if other shares have the token that this one lacks. */
  get elsewhere(): boolean {
    return !this.open && !this.#alone && this.pool >= 1 + this.#settings.burst * WORTH_ASKING;
  }

  /** True if no more than half is used up, here and in the whole bucket. */
  get isAmple(): boolean {
    return 2 * this.#tokens >= this.#capacity && 2 * this.pool >= this.#settings.burst;
  }

  /** Seconds until the whole bucket has a token more; not rounded. */
  get nextIn(): number {
    const { perSecond, burst } = this.#settings;
    if (this.pool >= burst) return 0;
    return (Math.max(0, Math.floor(this.pool)) + 1 - this.pool) / perSecond;
  }

  /** Seconds until a request may pass if no other comes before; not rounded. */
  get openIn(): number {
    const { perSecond } = this.#settings;
    if (this.#alone) return Math.max(0, 1 - this.#tokens) / (perSecond * this.#share);
    return Math.max(0, 1 - this.pool) / perSecond;
  }

  /** Takes over the state of the whole bucket, which does not include `pending` requests. */
  accept(tokens: number, share: number, pending: number, now: number): void {
    this.refill(now);
    this.#alone = false;
    this.#share = share;
    this.pool = tokens - pending;
    this.#tokens = partOf(tokens, share) - pending;
  }

  /** The usage of other processes is no longer known. */
  goAlone(share: number, now: number): void {
    this.refill(now);
    this.#alone = true;
    this.#share = share;
    this.refill(now);
  }

  /** Changes the settings; tokens taken stay taken. */
  change(settings: RateSettings, now: number): void {
    this.refill(now);
    this.#settings = settings;
    this.refill(now);
  }
}
