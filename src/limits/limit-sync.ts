import type { Clock } from '../base/clock.ts';
import { reportDefect } from '../base/expected-errors.ts';
import type { LocalLimit } from './local-limit.ts';
import type { LimitStore } from './store.ts';

/** Between two reports of a limit that is in use, and between two calls of `LimitSync.beat`, in milliseconds. */
export const AWAKE_MS = 1_000;
/** Between two reports of a limit that was not used for `ASLEEP_AFTER_MS`, in milliseconds. */
const ASLEEP_MS = 15_000;
const ASLEEP_AFTER_MS = 10_000;
/** Missed reports after which a process no longer counts. */
const MISSED = 3;
/** Timers fire a little early or late. */
const EARLY_MS = AWAKE_MS / 10;

export interface LimitSyncOptions {
  readonly name: string;
  readonly local: LocalLimit;
  readonly store: LimitStore;
  readonly clock: Clock;
  /** Called for each settlement that failed. */
  readonly onError: () => void;
}

/** Synchronises one limit with the other processes in the background, one call at a time. */
export class LimitSync {
  readonly #options: LimitSyncOptions;
  #timer: NodeJS.Timeout | undefined;
  /** When the timer fires. */
  #due = Number.POSITIVE_INFINITY;
  #running: Promise<void> | undefined;
  #again = false;
  /** The last call failed: only the beat tries again. */
  #alone = false;
  #stopped = false;
  #last = Number.NEGATIVE_INFINITY;
  #reportedAsleep = false;

  constructor(options: LimitSyncOptions) {
    this.#options = options;
  }

  /** The limit was used, or refused a request. */
  touch(): void {
    if (this.#alone || this.#stopped) return;
    if (this.#running !== undefined) {
      this.#again = true;
      return;
    }
    const { local, clock } = this.#options;
    const pauseMs = local.starved ? 0 : local.pauseMs;
    const due = this.#last + pauseMs;
    const wait = due - clock.now();
    if (wait <= 0) void this.settle();
    else if (due < this.#due) this.#settleIn(wait, due);
  }

  /** The caller calls it every `AWAKE_MS`. */
  beat(): void {
    const due = this.#last + (this.#asleep ? ASLEEP_MS : AWAKE_MS);
    // A process that falls asleep reports it; otherwise it would no longer count before its next report.
    const changed = this.#asleep !== this.#reportedAsleep;
    if (changed || this.#options.clock.now() + EARLY_MS >= due) void this.settle();
  }

  /** Reports now, or joins the report under way. Never rejects. */
  settle(): Promise<void> {
    this.#running ??= this.#settle(MISSED * (this.#asleep ? ASLEEP_MS : AWAKE_MS)).finally(() => {
      this.#running = undefined;
      if (!this.#again) return;
      this.#again = false;
      this.touch();
    });
    return this.#running;
  }

  /** Reports for the last time: this process no longer counts. */
  async leave(): Promise<void> {
    this.stop();
    await this.#running;
    await this.#settle(0);
  }

  /** Ends the reports. */
  stop(): void {
    this.#stopped = true;
    clearTimeout(this.#timer);
  }

  get #asleep(): boolean {
    return this.#options.local.idleMs > ASLEEP_AFTER_MS;
  }

  #settleIn(milliseconds: number, due: number): void {
    clearTimeout(this.#timer);
    this.#due = due;
    this.#timer = setTimeout(() => void this.settle(), milliseconds).unref();
  }

  async #settle(lifetimeMs: number): Promise<void> {
    const { name, local, store, clock, onError } = this.#options;
    clearTimeout(this.#timer);
    this.#due = Number.POSITIVE_INFINITY;
    this.#last = clock.now();
    this.#reportedAsleep = this.#asleep;
    const report = local.report(lifetimeMs);
    try {
      local.accept(await store.settle(name, report), report);
      this.#alone = false;
    } catch (error) {
      reportDefect(error);
      this.#alone = true;
      local.goAlone();
      onError();
    }
  }
}
