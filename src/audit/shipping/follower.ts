import { setTimeout as delay } from 'node:timers/promises';
import { monotonicClock } from '../../base/clock.ts';
import { messageOf } from '../../base/error-code.ts';
import { ignoreAbort, reportDefect } from '../../base/expected-errors.ts';
import { Throttle } from '../../base/throttle.ts';
import type { PositionFile, SinkPosition } from '../segments/signed-file.ts';
import { Rejected, RetryLater } from './receiver.ts';

const POLL_MS = 500;
/** Least interval at which the position is stored while there is more to send, in milliseconds. */
const STORE_EVERY_MS = 1_000;
/** Pause after the first failure, and the longest one, in milliseconds. */
const FIRST_PAUSE_MS = 250;
const LONGEST_PAUSE_MS = 30_000;
/** The longest pause that a receiver can ask for, in milliseconds. */
const LONGEST_ASKED_MS = 300_000;

/** A part of one process's log that is delivered as a whole. */
export interface Unit<T> {
  /** Undefined: there is nothing to deliver, but the position moves. */
  readonly content: T | undefined;
  /** Records in it. */
  readonly records: number;
  /** Since when it could be sent, in Unix milliseconds. */
  readonly since: number;
  /** The position after it. */
  readonly position: SinkPosition;
}

/** The log of one process, in order, from the position of a sink on. */
export interface Source<T> {
  /**
   * The next unit; undefined: there is none yet. `isLast`: the follower ends after what is there, so nothing is gathered.
   * @throws Error if a file cannot be read; it may be called again
   */
  next(isLast: boolean): Promise<Unit<T> | undefined>;
  /** Records after this position that could be sent. */
  behind(position: SinkPosition | undefined): Promise<number>;
  /**
   * Called after a unit was not confirmed, if the receiver keeps the position itself: the next unit begins where that is
   * by then, or the source makes a newer unit. Otherwise the same unit is delivered again.
   */
  returnToPosition?(error: unknown): Promise<void>;
  close(): Promise<void>;
}

/** Sends units to one receiver. */
export interface Delivery<T> {
  /**
   * Resolves when the receiver has confirmed the content, to the number of records that it refused for good or
   * that are gone. Ends soon after `signal` is aborted.
   * @throws Error with a reason that holds no secret
   */
  deliver(content: T, signal: AbortSignal): Promise<number>;
  close(): Promise<void>;
}

/** Receives the state of sinks. */
export type SinkLog = Readonly<Record<'info' | 'warn' | 'error', (fields: object, msg: string) => void>>;

/** Options of every kind of sink. */
export interface CommonOptions {
  readonly name: string;
  /** How long one delivery may take, in milliseconds. */
  readonly timeout: number;
}

/** How far a sink is, over the logs of all processes. */
export interface SinkStatus {
  /** Why nothing arrives from at least one log; undefined: everything does. */
  readonly failing: string | undefined;
  /** Since when the oldest record that waits could be sent, in Unix milliseconds; undefined: none waits. */
  readonly since: number | undefined;
  /** Records that wait. */
  readonly behind: number;
  /** Records that arrived, attempts that failed, and records that can never be sent; since the start. */
  readonly delivered: number;
  readonly failures: number;
  readonly skipped: number;
  /** True: a log is not a continuation of what the witness has cosigned. */
  readonly rejected: boolean;
}

export const NO_STATUS: SinkStatus = {
  failing: undefined,
  since: undefined,
  behind: 0,
  delivered: 0,
  failures: 0,
  skipped: 0,
  rejected: false,
};

/** The status of two logs, or of one log before and after a restart. */
export function addStatus(a: SinkStatus, b: SinkStatus): SinkStatus {
  const since = Math.min(a.since ?? Number.POSITIVE_INFINITY, b.since ?? Number.POSITIVE_INFINITY);
  return {
    failing: a.failing ?? b.failing,
    since: Number.isFinite(since) ? since : undefined,
    behind: a.behind + b.behind,
    delivered: a.delivered + b.delivered,
    failures: a.failures + b.failures,
    skipped: a.skipped + b.skipped,
    rejected: a.rejected || b.rejected,
  };
}

/** The part of a status that is kept when its log is no longer followed. */
export function endedStatus({ delivered, failures, skipped }: SinkStatus): SinkStatus {
  return { ...NO_STATUS, delivered, failures, skipped };
}

interface FollowerOptions {
  readonly sink: string;
  /** The process whose log is followed. */
  readonly replica: string;
  /** How long one delivery may take, in milliseconds. */
  readonly timeout: number;
  /** Interval at which a log that has nothing new is read again, in milliseconds; undefined: half a second. */
  readonly pollMs: number | undefined;
}

export interface FollowerDeps<T> {
  readonly source: Source<T>;
  readonly delivery: Delivery<T>;
  readonly file: PositionFile;
  /** Where the source begins. */
  readonly position: SinkPosition | undefined;
  readonly log: SinkLog;
}

/**
 * Sends the log of one process to one sink: reads a unit, delivers it until the receiver confirms it, and then moves the
 * position. A crash or an outage means that units are sent again, never that one is lost.
 */
export class Follower<T> {
  readonly #options: FollowerOptions;
  readonly #deps: FollowerDeps<T>;
  readonly #ended = new AbortController();
  /** Ends the pause between two readings. */
  readonly #hurried = new AbortController();
  /** The unit that is being delivered. */
  #unit: Unit<T> | undefined;
  #position: SinkPosition | undefined;
  #stored: SinkPosition | undefined;
  #storedAt = Number.NEGATIVE_INFINITY;
  #failuresInRow = 0;
  #since: number | undefined;
  readonly #running: Promise<void>;
  #failing: string | undefined;
  /** True if the receiver refused the last unit for good. */
  #rejected = false;
  readonly #counts = { delivered: 0, failures: 0, skipped: 0 };
  /** A receiver that refuses or fails now and then must not fill the log. */
  readonly #lines = new Throttle(monotonicClock, 2);
  /** True if the log's last line about the receiver says that it fails. */
  #isFailureLogged = false;
  /** Records that were refused for good, and those sent with them, of which the log does not say so yet. */
  #refused = { records: 0, of: 0 };

  constructor(options: FollowerOptions, deps: FollowerDeps<T>) {
    this.#options = options;
    this.#deps = deps;
    this.#position = deps.position;
    this.#stored = deps.position;
    this.#running = this.#run();
  }

  async status(): Promise<SinkStatus> {
    // A folder that was removed since has nothing to send.
    const behind = (await this.#deps.source.behind(this.#position).catch(reportDefect)) ?? 0;
    const [failing, since, rejected] = [this.#failing, this.#since, this.#rejected];
    return { failing, since, behind, ...this.#counts, rejected };
  }

  /** Delivers what is there, until the signal is aborted, and closes. */
  async finish(signal: AbortSignal): Promise<void> {
    this.#hurried.abort();
    const end = (): void => this.#ended.abort();
    if (signal.aborted) end();
    else signal.addEventListener('abort', end, { once: true });
    await this.#running;
    signal.removeEventListener('abort', end);
  }

  get #isFinishing(): boolean {
    return this.#hurried.signal.aborted;
  }

  async #run(): Promise<void> {
    const { signal } = this.#ended;
    while (!signal.aborted) {
      try {
        if (await this.#step()) break;
      } catch (error) {
        if (signal.aborted) break;
        await this.#waitAfter(error);
      }
    }
    this.#logRefused(true);
    await this.#store().catch(reportDefect);
    await this.#deps.source.close();
  }

  /** Delivers the next unit, or waits for one; true: everything is delivered, and no more is to be. */
  async #step(): Promise<boolean> {
    // Records that came while the source was reading are read once more at the end.
    const isLast = this.#isFinishing;
    this.#unit ??= await this.#deps.source.next(isLast);
    if (this.#unit === undefined) {
      this.#since = undefined;
      this.#logRefused();
      await this.#store();
      this.#recover(isLast);
      if (isLast) return true;
      await this.#pause(this.#options.pollMs ?? POLL_MS);
      return false;
    }
    this.#since = this.#unit.since;
    await this.#deliver(this.#unit);
    this.#unit = undefined;
    if (performance.now() - this.#storedAt > STORE_EVERY_MS) await this.#store();
    this.#recover();
    return false;
  }

  async #deliver({ content, records, position }: Unit<T>): Promise<void> {
    const refused = content === undefined ? 0 : await this.#confirmed(content);
    this.#counts.delivered += records - refused;
    this.#counts.skipped += refused;
    this.#position = position;
    if (refused > 0)
      this.#refused = { records: this.#refused.records + refused, of: this.#refused.of + records };
    this.#logRefused();
  }

  #logRefused(isDue = false): void {
    if (this.#refused.records === 0 || (this.#lines.admit('refused') === undefined && !isDue)) return;
    const { sink, replica } = this.#options;
    const msg = 'audit records were refused for good or are gone; they are not sent to the sink again';
    this.#deps.log.error({ sink, log: replica, ...this.#refused, last: this.#position?.seq }, msg);
    this.#refused = { records: 0, of: 0 };
  }

  async #confirmed(content: T): Promise<number> {
    const { timeout } = this.#options;
    const late = AbortSignal.timeout(timeout);
    try {
      return await this.#deps.delivery.deliver(content, AbortSignal.any([this.#ended.signal, late]));
    } catch (error) {
      if (!late.aborted) throw error;
      throw new Error(`not confirmed within ${timeout} ms`, { cause: error });
    }
  }

  /** Stores the position, if it has moved. */
  async #store(): Promise<void> {
    if (this.#position === undefined || this.#position === this.#stored) return;
    const position = this.#position;
    await this.#deps.file.write(position);
    this.#stored = position;
    this.#storedAt = performance.now();
  }

  /** Waits until the next attempt after a failure. */
  async #waitAfter(error: unknown): Promise<void> {
    const { source } = this.#deps;
    this.#fail(error);
    if (source.returnToPosition !== undefined) {
      this.#unit = undefined;
      await source.returnToPosition(error).catch(reportDefect);
    }
    await this.#pause(this.#pauseAfter(error));
  }

  #fail(error: unknown): void {
    const { sink, replica } = this.#options;
    this.#counts.failures += 1;
    this.#failuresInRow += 1;
    this.#since ??= Date.now();
    const reason = messageOf(error);
    // A receiver that fails from now on may not respond for hours.
    this.#logRefused(!this.#isFailureLogged);
    if (!this.#isFailureLogged) {
      const msg = 'audit sink fails; records are kept, and sent later';
      this.#deps.log.warn({ sink, log: replica, reason }, msg);
      this.#isFailureLogged = true;
    }
    this.#failing = reason;
    // Only a success shows that it holds no more: who cut the log off may also cut the gateway off from its witness.
    this.#rejected ||= error instanceof Rejected;
  }

  #recover(isLast = false): void {
    this.#failuresInRow = 0;
    this.#failing = undefined;
    this.#rejected = false;
    // This line waits, not that of a failure: the next attempt may be minutes away.
    if (!this.#isFailureLogged || (this.#lines.admit('recovered') === undefined && !isLast)) return;
    this.#isFailureLogged = false;
    const { sink, replica } = this.#options;
    this.#deps.log.info({ sink, log: replica, seq: this.#position?.seq }, 'audit sink gets records again');
  }

  /** Doubles with each failure. The random part keeps replicas from coming back all at once. */
  #pauseAfter(error: unknown): number {
    if (error instanceof RetryLater) return Math.min(error.after, LONGEST_ASKED_MS);
    const longest = Math.min(FIRST_PAUSE_MS * 2 ** (this.#failuresInRow - 1), LONGEST_PAUSE_MS);
    return longest * (0.5 + Math.random() / 2);
  }

  async #pause(milliseconds: number): Promise<void> {
    // At the end there is one last attempt at once, and then one at a time as long as it is allowed.
    const signals = this.#isFinishing ? [this.#ended.signal] : [this.#ended.signal, this.#hurried.signal];
    await delay(milliseconds, undefined, { signal: AbortSignal.any(signals) }).catch(ignoreAbort);
  }
}
