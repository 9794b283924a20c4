import type { Clock } from '../base/clock.ts';
import type { Allowance } from './allowance.ts';
import type { LimitStore } from './store.ts';

/** How often a process says that it is there, and hears of the others: while a limit is used, … */
const AWAKE_MS = 1_000;
/** … and when it was not used for a while. */
const ASLEEP_MS = 15_000;
const ASLEEP_AFTER_MS = 10_000;
/** How many beats a process may miss before it no longer counts. */
const MISSED = 3;
/** Timers fire a little early or late. */
const EARLY_MS = AWAKE_MS / 10;

export interface SettlingOptions {
  readonly name: string;
  readonly allowance: Allowance;
  readonly store: LimitStore;
  readonly clock: Clock;
  /** Told of each settlement that failed. */
  readonly onError: () => void;
}

/** Settles what one allowance uses with the other processes, behind the requests, one call at a time. */
export class Settling {
  readonly #options: SettlingOptions;
  #timer: NodeJS.Timeout | undefined;
  #running: Promise<void> | undefined;
  #again = false;
  /** Nobody answers: only the beat tries. */
  #alone = false;
  #stopped = false;
  #last = Number.NEGATIVE_INFINITY;
  #reportedAsleep = false;

  constructor(options: SettlingOptions) {
    this.#options = options;
  }

  /** The allowance was used, or found empty. */
  touch(): void {
    if (this.#alone || this.#stopped) return;
    if (this.#running !== undefined) {
      this.#again = true;
      return;
    }
    const { allowance, clock } = this.#options;
    const wait = allowance.starved ? 0 : this.#last + allowance.pauseMs - clock.now();
    if (wait <= 0) void this.settle();
    else this.#timer ??= setTimeout(() => void this.settle(), wait).unref();
  }

  /** To be called every `BEAT_MS`. */
  beat(): void {
    const due = this.#last + (this.#asleep ? ASLEEP_MS : AWAKE_MS);
    // Who falls asleep says so, or would no longer count before the next report.
    const changed = this.#asleep !== this.#reportedAsleep;
    if (changed || this.#options.clock.now() + EARLY_MS >= due) void this.settle();
  }

  /** Settles now, or joins the settlement under way. Never rejects. */
  settle(): Promise<void> {
    this.#running ??= this.#settle(MISSED * (this.#asleep ? ASLEEP_MS : AWAKE_MS)).finally(() => {
      this.#running = undefined;
      if (!this.#again) return;
      this.#again = false;
      this.touch();
    });
    return this.#running;
  }

  /** Settles for the last time: this process no longer counts. */
  async leave(): Promise<void> {
    this.stop();
    await this.#running;
    await this.#settle(0);
  }

  /** No more settlements from here on. */
  stop(): void {
    this.#stopped = true;
    clearTimeout(this.#timer);
  }

  get #asleep(): boolean {
    return this.#options.allowance.idleMs > ASLEEP_AFTER_MS;
  }

  async #settle(lifetimeMs: number): Promise<void> {
    const { name, allowance, store, clock, onError } = this.#options;
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#last = clock.now();
    this.#reportedAsleep = this.#asleep;
    const report = allowance.report(lifetimeMs);
    try {
      allowance.accept(await store.settle(name, report), report);
      this.#alone = false;
    } catch {
      this.#alone = true;
      allowance.goAlone();
      onError();
    }
  }
}

/** How often `Settling.beat` is to be called, in milliseconds. */
export const BEAT_MS = AWAKE_MS;
