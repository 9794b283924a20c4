import { Bucket } from './bucket.ts';
import { Quota } from './quota.ts';
import type { LimitSettings } from './settings.ts';
import { Slots } from './slots.ts';
import type { Report, Standing } from './store.ts';

/** What time it is: on a clock that never goes back, and in milliseconds since 1970. */
export interface Clocks {
  now(): number;
  epoch(): number;
}

/** Why a request may not pass, and for how long: whole seconds, at least 1. */
export interface Shortage {
  readonly limit: 'rate' | 'concurrent' | 'daily';
  readonly seconds: number;
}

/** Whom an allowance is for. */
export type Party = 'client' | 'deployment';

/** The longest between something used and its report, in milliseconds. */
const LONGEST_PAUSE_MS = 50;
const SHORTEST_PAUSE_MS = 2;

/**
 * What one client, or one deployment, may use in this process, and what it has used. Decides at once, by the
 * part that this process has; a store only moves the parts.
 */
export class Allowance {
  readonly party: Party;
  readonly #clocks: Clocks;
  readonly #slots: Slots;
  #settings: LimitSettings;
  #bucket: Bucket | undefined;
  #quota: Quota | undefined;
  #policy: string;
  #share = 1;
  #members = 1;
  #total = 0;
  #settled = 0;
  #wanted = 0;
  #alone = true;
  #lastUsed: number;

  constructor(party: Party, settings: LimitSettings, clocks: Clocks) {
    this.party = party;
    this.#clocks = clocks;
    this.#settings = settings;
    this.#slots = new Slots(settings.concurrent);
    this.#bucket = settings.rate && new Bucket(settings.rate, 1, clocks.now());
    this.#quota = settings.daily === undefined ? undefined : new Quota(settings.daily, 1, clocks.epoch());
    this.#policy = policyOf(party, settings);
    this.#lastUsed = clocks.now();
  }

  /** Takes new settings over without forgetting what was used. */
  change(settings: LimitSettings): void {
    const now = this.#clocks.now();
    const { rate, daily } = settings;
    this.#settings = settings;
    this.#slots.change(settings.concurrent);
    if (rate === undefined || this.#bucket === undefined) {
      this.#bucket = rate && new Bucket(rate, this.#share, now);
    } else {
      this.#bucket.change(rate, now);
    }
    if (daily === undefined || this.#quota === undefined) {
      this.#quota = daily === undefined ? undefined : new Quota(daily, this.#share, this.#clocks.epoch());
    } else {
      this.#quota.change(daily);
    }
    this.#policy = policyOf(this.party, settings);
  }

  /** What keeps one more request from passing; undefined: nothing. Takes nothing yet. */
  shortage(): Shortage | undefined {
    this.#advance();
    this.#wanted += 1;
    if (!this.#slots.open) return { limit: 'concurrent', seconds: 1 };
    if (this.#quota?.open === false) {
      const seconds = this.#quota.elsewhere ? 1 : Quota.secondsLeft(this.#clocks.epoch());
      return { limit: 'daily', seconds };
    }
    if (this.#bucket?.open === false) {
      return { limit: 'rate', seconds: Math.max(1, Math.ceil(this.#bucket.openIn)) };
    }
    return undefined;
  }

  /** Takes what one request uses, after `shortage` found none. */
  take(): void {
    this.#total += 1;
    this.#slots.take();
    this.#quota?.spend();
    this.#bucket?.spend();
  }

  /** The request has ended. */
  release(): void {
    this.#lastUsed = this.#clocks.now();
    this.#slots.release();
  }

  /** The value of RateLimit-Policy. */
  get policy(): string {
    return this.#policy;
  }

  /** The value of RateLimit, as of the last request: what all processes together have left. */
  get state(): string {
    const items: string[] = [];
    if (this.#bucket !== undefined) {
      const left = Math.max(0, Math.floor(this.#bucket.pool));
      items.push(`"${this.party}-rate";r=${left};t=${Math.max(1, Math.ceil(this.#bucket.nextIn))}`);
    }
    if (this.#quota !== undefined) {
      const seconds = Quota.secondsLeft(this.#clocks.epoch());
      items.push(`"${this.party}-daily";r=${this.#quota.remaining};t=${seconds}`);
    }
    if (this.#settings.concurrent !== undefined) {
      items.push(`"${this.party}-concurrent";r=${this.#slots.free}`);
    }
    return items.join(', ');
  }

  /** Whether another process holds what is missing here, so that it is worth asking at once. */
  get starved(): boolean {
    if (this.#alone) return false;
    return this.#slots.elsewhere || this.#quota?.elsewhere === true || this.#bucket?.elsewhere === true;
  }

  /** How long a report may be behind what it reports, in milliseconds: a quarter of the bucket's at most. */
  get pauseMs(): number {
    const { rate } = this.#settings;
    const quarter = rate === undefined ? LONGEST_PAUSE_MS : (rate.burst / rate.perSecond) * 250;
    return Math.min(LONGEST_PAUSE_MS, Math.max(SHORTEST_PAUSE_MS, quarter));
  }

  /** Milliseconds since it was last used; 0 while requests are under way. */
  get idleMs(): number {
    return this.#slots.inFlight > 0 ? 0 : this.#clocks.now() - this.#lastUsed;
  }

  report(lifetimeMs: number): Report {
    this.#advance(false);
    const pending = this.#total - this.#settled;
    const missing = this.#alone && this.#bucket ? Math.ceil(this.#bucket.missing) : pending;
    const wanted = this.#wanted;
    this.#wanted = 0;
    return {
      total: this.#total,
      settled: this.#settled,
      forgiven: Math.max(0, pending - missing),
      wanted,
      inFlight: this.#slots.inFlight,
      lifetimeMs,
      perSecond: this.#settings.rate?.perSecond ?? 0,
      burst: this.#settings.rate?.burst ?? 0,
      tokens: this.#bucket === undefined ? 0 : this.#bucket.pool + pending,
      used: this.#quota === undefined ? 0 : Math.max(0, this.#quota.used - pending),
      day: this.#quota?.today ?? 0,
    };
  }

  /** How it stands for all, in answer to a report. */
  accept(standing: Standing, report: Report): void {
    const { tokens, used, othersInFlight, members, share } = standing;
    this.#alone = false;
    this.#settled = report.total;
    this.#members = members;
    this.#share = share;
    const pending = this.#total - report.total;
    this.#bucket?.accept(tokens, share, pending, this.#clocks.now());
    this.#quota?.accept(used, share, pending);
    this.#slots.accept(othersInFlight, share, report.inFlight);
  }

  /** No answer: goes on with an equal part, or with everything if it never heard of others. */
  goAlone(): void {
    if (this.#alone) return;
    this.#alone = true;
    this.#share = 1 / this.#members;
    this.#bucket?.goAlone(this.#share, this.#clocks.now());
    this.#quota?.goAlone(this.#share);
    this.#slots.goAlone(this.#share);
  }

  #advance(used = true): void {
    const now = this.#clocks.now();
    if (used) this.#lastUsed = now;
    this.#bucket?.refill(now);
    if (this.#quota !== undefined) this.#quota.roll(this.#clocks.epoch());
  }
}

function policyOf(party: Party, { rate, concurrent, daily }: LimitSettings): string {
  const items: string[] = [];
  if (rate !== undefined) {
    items.push(`"${party}-rate";q=${rate.burst};w=${Math.max(1, Math.ceil(rate.burst / rate.perSecond))}`);
  }
  if (daily !== undefined) items.push(`"${party}-daily";q=${daily};w=86400`);
  if (concurrent !== undefined) {
    items.push(`"${party}-concurrent";q=${concurrent};qu="concurrent-requests"`);
  }
  return items.join(', ');
}
