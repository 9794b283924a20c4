import { Bucket } from './bucket.ts';
import { Quota } from './quota.ts';
import { Slots } from './slots.ts';
import type { LimitSettings, LimitState, Report } from './store.ts';

/** `now`: milliseconds on a clock that never goes back. `epoch`: milliseconds since 1970. */
export interface Clocks {
  now(): number;
  epoch(): number;
}

/** The limit that refuses a request, and for how long: whole seconds, at least 1. */
export interface Shortage {
  readonly limit: 'rate' | 'concurrent' | 'daily';
  readonly seconds: number;
}

export type LimitScope = 'client' | 'deployment';

/** The use of a limit at one moment, of all processes together as far as this one knows. null: not limited. */
export interface LimitUse {
  /** `left`: requests that may come at once. */
  readonly rate: { readonly perSecond: number; readonly burst: number; readonly left: number } | null;
  readonly concurrent: { readonly most: number; readonly inFlight: number } | null;
  readonly daily: { readonly most: number; readonly used: number } | null;
}

/** The longest delay of a report, in milliseconds, while few processes share the limit. */
const LONGEST_PAUSE_MS = 50;
/** The same while no more than half of the limit is used: no process needs the part of another one then. */
const AMPLE_PAUSE_MS = 250;
const SHORTEST_PAUSE_MS = 2;
/**
 * With more processes, each reports more rarely: a report costs the store the more the more processes there are, so
 * its work would grow with their square.
 */
const FEW_PROCESSES = 8;
/** The longest delay with any number of processes, in milliseconds. */
const CROWD_PAUSE_MS = 500;

/** How long after its Retry-After a client is waited for, in milliseconds. */
const GRACE_MS = 500;
/** Number of places after which a change of the share that is claimed is mostly known. */
const PLACES_REMEMBERED = 20;

/**
 * Clients that a limit has refused, in the order in which that happened. Each comes before those that were refused later,
 * or not at all: otherwise a client that asks without pause would take every place that becomes free.
 */
class Turns {
  /** By client: until when its place is kept. */
  readonly #waiting = new Map<string, number>();
  /**
   * The share of the places kept lately whose clients have claimed them. Behind a load balancer, most come again at
   * another process, and would block this one if each of their places counted in full.
   */
  #claimed = 1;

  /** Keeps a place for a client that was told to come again after so many seconds. One that had a place keeps it. */
  wait(client: string, now: number, seconds: number): void {
    this.#waiting.set(client, now + seconds * 1000 + GRACE_MS);
  }

  /** True if so many other clients are expected before this one that they take all the room. */
  isBehind(client: string, now: number, room: number): boolean {
    let ahead = 0;
    for (const [other, until] of this.#waiting) {
      if (other === client) return false;
      if (until <= now) {
        this.#waiting.delete(other);
        this.#count(0);
      } else {
        ahead += this.#claimed;
      }
      if (ahead > room - 1) return true;
    }
    return false;
  }

  /** True if most places were kept in vain lately. */
  get areMostlyInVain(): boolean {
    return this.#claimed < 0.5;
  }

  /** The client has got a place. */
  end(client: string): void {
    if (this.#waiting.size > 0 && this.#waiting.delete(client)) this.#count(1);
  }

  /** `claimed`: 1 for a place that its client has got, 0 for one that was kept in vain. */
  #count(claimed: number): void {
    this.#claimed += (claimed - this.#claimed) / PLACES_REMEMBERED;
  }
}

/**
 * The limits of one client or deployment in this process. A request is decided at once, by this process's share; the
 * store only moves the shares.
 */
export class LocalLimit {
  readonly scope: LimitScope;
  readonly #clocks: Clocks;
  readonly #slots: Slots;
  readonly #turns = new Turns();
  #settings: LimitSettings;
  #bucket: Bucket | undefined;
  #quota: Quota | undefined;
  #policy: string;
  /** Starts of items of RateLimit. */
  readonly #rateStart: string;
  readonly #concurrentStart: string;
  #share = 1;
  #members = 1;
  #total = 0;
  #settled = 0;
  #wanted = 0;
  #alone = true;
  #lastUsed: number;

  constructor(scope: LimitScope, settings: LimitSettings, clocks: Clocks) {
    this.scope = scope;
    this.#clocks = clocks;
    this.#settings = settings;
    this.#slots = new Slots(settings.concurrent);
    this.#bucket = settings.rate && new Bucket(settings.rate, 1, clocks.now());
    this.#quota = settings.daily === undefined ? undefined : new Quota(settings.daily, 1, clocks.epoch());
    this.#policy = policyOf(scope, settings);
    this.#rateStart = `"${scope}-rate";r=`;
    this.#concurrentStart = `"${scope}-concurrent";r=`;
    this.#lastUsed = clocks.now();
  }

  /** Changes the settings; the usage so far still counts. */
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
    this.#policy = policyOf(this.scope, settings);
  }

  /** The limit that refuses one more request of the client; undefined: none. `take` then counts the request. */
  shortage(client: string, now = this.#clocks.now()): Shortage | undefined {
    this.#lastUsed = now;
    this.#advance(now);
    this.#wanted += 1;
    if (!this.#slots.open) return this.#wait(client, now, 'concurrent');
    if (this.#quota?.open === false) {
      const seconds = this.#quota.elsewhere ? 1 : Quota.secondsLeft(this.#clocks.epoch());
      return { limit: 'daily', seconds };
    }
    if (this.#bucket?.open === false) return this.#wait(client, now, 'rate');
    const free = this.#slots.room;
    const bucket = this.#bucket;
    // Of a full share anybody gets a token, which would be lost, if another one is left for those who are waited for, or
    // most of them do not come. A small share never has two.
    const isSpare =
      bucket === undefined || (bucket.isFull && (bucket.room >= 2 || this.#turns.areMostlyInVain));
    const tokens = isSpare ? Number.POSITIVE_INFINITY : bucket.room;
    if (!this.#turns.isBehind(client, now, Math.min(free, tokens))) return undefined;
    return this.#wait(client, now, free < tokens ? 'concurrent' : 'rate');
  }

  #wait(client: string, now: number, limit: 'rate' | 'concurrent'): Shortage {
    const openIn = limit === 'rate' ? (this.#bucket?.openIn ?? 0) : 0;
    const seconds = Math.max(1, Math.ceil(openIn));
    this.#turns.wait(client, now, seconds);
    return { limit, seconds };
  }

  /** Counts one request of the client, after `shortage` found no reason to refuse it. */
  take(client: string): void {
    this.#turns.end(client);
    this.#total += 1;
    this.#slots.take();
    this.#quota?.spend();
    this.#bucket?.spend();
  }

  /** The request has ended. */
  release(): void {
    this.#slots.release();
    // While others are under way, it is in use.
    if (this.#slots.inFlight === 0) this.#lastUsed = this.#clocks.now();
  }

  /** The value of RateLimit-Policy. */
  get policy(): string {
    return this.#policy;
  }

  /** The value of RateLimit, as of the last request: the rest for all processes together. */
  get state(): string {
    let text = '';
    if (this.#bucket !== undefined) {
      const left = Math.max(0, Math.floor(this.#bucket.pool));
      text = `${this.#rateStart}${left};t=${Math.max(1, Math.ceil(this.#bucket.nextIn))}`;
    }
    if (this.#quota !== undefined) {
      const seconds = Quota.secondsLeft(this.#clocks.epoch());
      text += `${separator(text)}"${this.scope}-daily";r=${this.#quota.remaining};t=${seconds}`;
    }
    if (this.#settings.concurrent !== undefined) {
      text += `${separator(text)}${this.#concurrentStart}${this.#slots.free}`;
    }
    return text;
  }

  get use(): LimitUse {
    this.#advance(this.#clocks.now());
    const { rate, concurrent, daily } = this.#settings;
    return {
      rate:
        rate === undefined
          ? null
          : { ...rate, left: Math.max(0, Math.floor(this.#bucket?.pool ?? rate.burst)) },
      concurrent:
        concurrent === undefined ? null : { most: concurrent, inFlight: concurrent - this.#slots.free },
      daily: daily === undefined ? null : { most: daily, used: this.#quota?.used ?? 0 },
    };
  }

  /** True if the share here is used up but not those of other processes, so that a report at once helps. */
  get starved(): boolean {
    if (this.#alone) return false;
    return this.#slots.elsewhere || this.#quota?.elsewhere === true || this.#bucket?.elsewhere === true;
  }

  /** The delay of a report, in milliseconds: at most a quarter of the time in which the bucket fills. */
  get pauseMs(): number {
    const { rate } = this.#settings;
    const crowd = Math.min(CROWD_PAUSE_MS, LONGEST_PAUSE_MS * Math.max(1, this.#members / FEW_PROCESSES));
    const longest = this.#isAmple ? Math.max(crowd, AMPLE_PAUSE_MS) : crowd;
    const quarter = rate === undefined ? longest : (rate.burst / rate.perSecond) * 250;
    return Math.min(longest, Math.max(SHORTEST_PAUSE_MS, quarter));
  }

  get #isAmple(): boolean {
    return this.#slots.isAmple && this.#bucket?.isAmple !== false && this.#quota?.isAmple !== false;
  }

  /** Milliseconds since it was last used; 0 while requests are under way. */
  get idleMs(): number {
    return this.#slots.inFlight > 0 ? 0 : this.#clocks.now() - this.#lastUsed;
  }

  report(lifetimeMs: number): Report {
    this.#advance(this.#clocks.now());
    const pending = this.#total - this.#settled;
    const missing = this.#alone && this.#bucket ? Math.ceil(this.#bucket.missing) : pending;
    const wanted = this.#wanted;
    this.#wanted = 0;
    const ofDay = this.#quota?.own ?? this.#total;
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
      used: this.#quota === undefined ? 0 : Math.max(0, this.#quota.used - Math.min(pending, ofDay)),
      day: this.#quota?.day ?? 0,
      ofDay,
    };
  }

  /** Takes over the state of all processes, the reply to a report. */
  accept(state: LimitState, report: Report): void {
    const { tokens, used, day, othersInFlight, members, share } = state;
    this.#alone = false;
    this.#settled = report.total;
    this.#members = members;
    this.#share = share;
    const pending = this.#total - report.total;
    this.#bucket?.accept(tokens, share, pending, this.#clocks.now());
    this.#quota?.accept(used, day, share, pending);
    this.#slots.accept(othersInFlight, share, report.inFlight);
  }

  /** The store failed: goes on with an equal share, or with everything if no other process was known. */
  goAlone(): void {
    if (this.#alone) return;
    this.#alone = true;
    this.#share = 1 / this.#members;
    this.#bucket?.goAlone(this.#share, this.#clocks.now());
    this.#quota?.goAlone(this.#share);
    this.#slots.goAlone(this.#share);
  }

  #advance(now: number): void {
    this.#bucket?.refill(now);
    if (this.#quota !== undefined) this.#quota.roll(this.#clocks.epoch());
  }
}

function separator(before: string): string {
  return before === '' ? '' : ', ';
}

function policyOf(scope: LimitScope, { rate, concurrent, daily }: LimitSettings): string {
  const items: string[] = [];
  if (rate !== undefined) {
    items.push(`"${scope}-rate";q=${rate.burst};w=${Math.max(1, Math.ceil(rate.burst / rate.perSecond))}`);
  }
  if (daily !== undefined) items.push(`"${scope}-daily";q=${daily};w=86400`);
  if (concurrent !== undefined) {
    items.push(`"${scope}-concurrent";q=${concurrent};qu="concurrent-requests"`);
  }
  return items.join(', ');
}
