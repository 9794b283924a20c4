import { partOf, type RateSettings } from './store.ts';

/** Requests under way: counted always, and limited when a limit is set. */
export class Slots {
  #limit: number;
  #share = 1;
  /** Under way in this process. */
  #inFlight = 0;
  #othersInFlight = 0;
  /** Requests that this process may have under way; fewer than it has while all together exceed the limit. */
  #allowed: number;

  constructor(limit: number | undefined) {
    this.#limit = limit ?? Number.POSITIVE_INFINITY;
    this.#allowed = this.#limit;
  }

  get open(): boolean {
    return this.#inFlight + 1 <= Math.min(this.#allowed, this.#limit);
  }

  take(): void {
    this.#inFlight += 1;
  }

  release(): void {
    this.#inFlight -= 1;
  }

  get inFlight(): number {
    return this.#inFlight;
  }

  /** Free in all processes. */
  get free(): number {
    return Math.max(0, this.#limit - this.#othersInFlight - this.#inFlight);
  }

  get elsewhere(): boolean {
    return !this.open && this.free >= 1;
  }

  /** True if no more than half is in use, here and in all processes. */
  get isAmple(): boolean {
    return 2 * this.#inFlight <= this.#allowed && 2 * this.free >= this.#limit;
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
    this.accept(this.#othersInFlight, this.#share, this.#inFlight);
  }
}

/** More than this part of the bucket has to be elsewhere before it is asked for ahead of time. */
const WORTH_ASKING = 1 / 8;

/** Rounding error of added fractions. */
const ROUNDING = 1e-9;

/** This process's share of a token bucket, and the whole bucket as far as known. */
export class Bucket {
  #settings: RateSettings;
  #share: number;
  #tokens: number;
  /** Tokens in the whole bucket, as far as known. */
  #pool: number;
  #at: number;
  /** Tokens if this process were the only one: an upper bound, whatever a store says. */
  #own: number;
  /** The usage of other processes is unknown, so the whole is estimated from the share. */
  #alone = true;

  constructor(settings: RateSettings, share: number, now: number) {
    this.#settings = settings;
    this.#share = share;
    this.#pool = settings.burst;
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
    this.#pool = this.#alone ? this.#tokens / this.#share : Math.min(burst, this.#pool + came);
  }

  /** True if one more request may pass; as of the last `refill`, like all that follow. */
  get open(): boolean {
    return Math.min(this.#tokens, this.#own) >= 1 - ROUNDING;
  }

  spend(): void {
    this.#tokens -= 1;
    this.#own -= 1;
    this.#pool -= this.#alone ? 1 / this.#share : 1;
  }

  /** Tokens in the whole bucket. */
  get pool(): number {
    return this.#pool;
  }

  /** Tokens missing in the share of this process. */
  get missing(): number {
    return Math.max(0, this.#capacity - this.#tokens);
  }

  /** True if other shares have the token that this one lacks. */
  get elsewhere(): boolean {
    return !this.open && !this.#alone && this.#pool >= 1 + this.#settings.burst * WORTH_ASKING;
  }

  /** True if no more than half is used up, here and in the whole bucket. */
  get isAmple(): boolean {
    return 2 * this.#tokens >= this.#capacity && 2 * this.#pool >= this.#settings.burst;
  }

  /** Seconds until the whole bucket has a token more; not rounded. */
  get nextIn(): number {
    const { perSecond, burst } = this.#settings;
    if (this.#pool >= burst) return 0;
    return (Math.max(0, Math.floor(this.#pool)) + 1 - this.#pool) / perSecond;
  }

  /** Seconds until a request may pass if no other comes before; not rounded. */
  get openIn(): number {
    const { perSecond } = this.#settings;
    if (this.#alone) return Math.max(0, 1 - this.#tokens) / (perSecond * this.#share);
    return Math.max(0, 1 - this.#pool) / perSecond;
  }

  /** Takes over the state of the whole bucket, which does not include `pending` requests. */
  accept(tokens: number, share: number, pending: number, now: number): void {
    this.refill(now);
    this.#alone = false;
    this.#share = share;
    this.#pool = tokens - pending;
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

const DAY_MS = 86_400_000;

/** This process's share of a daily limit. Days are those of UTC. */
export class Quota {
  #limit: number;
  #share: number;
  #today: number;
  /** Requests of today in all processes, as far as known. */
  #used = 0;
  /** Requests of today in this process. */
  #own = 0;
  /** Requests that this process may still admit. */
  #left: number;

  /** `epoch`: milliseconds since 1970, as everywhere here. */
  constructor(limit: number, share: number, epoch: number) {
    this.#limit = limit;
    this.#share = share;
    this.#today = dayOf(epoch);
    this.#left = partOf(limit, share);
  }

  /** Starts a new day if `epoch` is in one. */
  roll(epoch: number): void {
    const today = dayOf(epoch);
    if (today === this.#today) return;
    this.#today = today;
    this.#used = 0;
    this.#own = 0;
    this.#left = partOf(this.#limit, this.#share);
  }

  get open(): boolean {
    // Whatever a store says, one process admits no more than the limit.
    return this.#left >= 1 && this.#own < this.#limit;
  }

  spend(): void {
    this.#own += 1;
    this.#used += 1;
    this.#left -= 1;
  }

  get today(): number {
    return this.#today;
  }

  get used(): number {
    return this.#used;
  }

  /** Requests left today in all processes. */
  get remaining(): number {
    return Math.max(0, this.#limit - this.#used);
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

  /** Takes over the usage of all processes, which does not include `pending` requests. */
  accept(used: number, share: number, pending: number): void {
    this.#share = share;
    this.#used = used + pending;
    this.#left = partOf(this.#limit - used, share) - pending;
  }

  goAlone(share: number): void {
    this.#share = share;
    this.#left = partOf(this.#limit - this.#used, share);
  }

  /** Changes the limit; the usage so far still counts. */
  change(limit: number): void {
    this.#limit = limit;
    this.#left = partOf(limit - this.#used, this.#share);
  }
}

/** Days since 1970, UTC. `epoch`: milliseconds since then. */
export function dayOf(epoch: number): number {
  return Math.floor(epoch / DAY_MS);
}
