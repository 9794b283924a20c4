import { inTime } from '../../base/clock.ts';
import { callEach, isolate, reportError } from '../../base/report-error.ts';
import { BatchTimer, type Waiter } from '../audit.ts';
import type { Head } from '../seal.ts';
import { type Batch, PendingRecords } from './batch.ts';
import { type ChainWriter, type WriteError, writeErrorOf } from './chain-writer.ts';

/** Interval of the checks for deadlines, the state of the file, and records without a waiter, in milliseconds. */
const TICK_MS = 100;
/** Bytes of pending records that are written without a waiter. */
const LARGE = 32 * 1024;
/** Bytes that are kept while nothing can be written. */
const BACKLOG = 16 * 1024 * 1024;

export interface JournalOptions {
  /** Number of the first record to come. */
  readonly nextSeq: number;
  /** How long a record may take to be written, in milliseconds. */
  readonly deadlineMs: number;
  /** Bytes and milliseconds after which a new segment is begun. */
  readonly segment: { readonly size: number; readonly age: number };
}

interface JournalDeps {
  readonly chain: ChainWriter;
  /** Called with the error when nothing can be written; with undefined when it can be again. */
  readonly onState: (error: WriteError | undefined) => void;
  /** Called when a batch is in the file. */
  readonly onSeal: (head: Head) => void;
  /** Called when a record got its text; `at`: Unix milliseconds. */
  readonly onRecord: (seq: number, at: number, record: string) => void;
  /** Called with the number of waiters whose records were not written. */
  readonly onUnrecorded: (count: number) => void;
  /** Called when a segment was closed. */
  readonly onClosed: () => void;
  /** Undefined: the keys of all records that have their text are stored. Otherwise, when it resolves, ask again. */
  readonly keysReady: () => Promise<void> | undefined;
}

/** A batch that is being written, or that is to be written again. */
interface InFlight {
  readonly batch: Batch;
  /** How long its first waiter has waited, counted in ticks. */
  waitedMs: number;
  waiters: readonly Waiter[];
}

/**
 * The records of one process on their way into its files. Records that come together, or while a batch is being
 * written, form one batch with one seal. A batch that could not be written is written again until it is.
 */
export class Journal {
  readonly #options: JournalOptions;
  readonly #deps: JournalDeps;
  readonly #chain: ChainWriter;
  readonly #timer: NodeJS.Timeout;
  readonly #pending: PendingRecords;
  readonly #batchTimer: BatchTimer;
  /** How long the first waiter of the pending records has waited, counted in ticks. */
  #waitedMs = 0;
  #inFlight: InFlight | undefined;
  #state: WriteError | undefined;
  /** Settles when the segment that is being begun is there, or could not be begun. */
  #opening: Promise<void> | undefined;
  #checking = false;
  /** The state of the keys of the batch in flight, if they were not stored when it was to be written. */
  #keys: 'storing' | 'failed' | undefined;
  #closing: (() => void) | undefined;

  constructor(options: JournalOptions, deps: JournalDeps) {
    this.#options = options;
    this.#deps = deps;
    this.#chain = deps.chain;
    this.#pending = new PendingRecords(options.nextSeq, {
      onRecord: deps.onRecord,
      onFailed: (waiter) => this.#tellUnrecorded([waiter]),
    });
    this.#batchTimer = new BatchTimer(() => this.#flush());
    this.#timer = setInterval(() => this.#tick(), TICK_MS).unref();
  }

  /** Why nothing can be written; undefined: it can. */
  get failing(): string | undefined {
    return this.#state?.reason;
  }

  /** Number of the last record that was added. */
  get lastSeq(): number {
    return this.#pending.last;
  }

  /** True if the backlog is full: no more records are to be added. */
  get full(): boolean {
    return this.#pending.size + (this.#inFlight?.batch.lines.size ?? 0) >= BACKLOG;
  }

  /**
   * Adds a record, whose text is made later for its time `at`, in Unix milliseconds; returns its number. A record without
   * a waiter may be written late.
   */
  append(text: (at: number) => string, waiter?: Waiter, at?: number): number {
    if (waiter !== undefined && this.#pending.waiting === 0) this.#waitedMs = 0;
    const seq = this.#pending.add(text, waiter, at);
    if (waiter === undefined) {
      if (this.#pending.size >= LARGE) this.#schedule();
      return seq;
    }
    if (this.#state !== undefined) this.#giveUp();
    else this.#schedule();
    return seq;
  }

  /** Writes pending records without waiting for the next tick. */
  writeSoon(): void {
    if (!this.#pending.isEmpty) this.#schedule();
  }

  /** Writes the records that are left, if the disk does so in time, and releases the folder. */
  async close(): Promise<void> {
    // The end of the process does not wait for a disk that hangs.
    const { deadlineMs } = this.#options;
    await inTime(this.#opening, deadlineMs);
    const hasRecords = !this.#pending.isEmpty || this.#inFlight !== undefined;
    if (hasRecords && this.#opening === undefined) {
      await new Promise<void>((resolve) => {
        this.#closing = resolve;
        // A disk that takes nothing is tried again by the timer, which nothing else may keep the process alive for.
        this.#timer.ref();
        // A write that has missed its deadline is not waited for; a batch that was refused is tried once more.
        const isRefused = this.#inFlight !== undefined && !this.#chain.writable;
        if (this.#state !== undefined && !isRefused) resolve();
        else this.#flush();
      });
    }
    await inTime(this.#opening, deadlineMs);
    clearInterval(this.#timer);
    // A file that the disk still works on cannot be closed.
    const isFree = this.#inFlight === undefined || this.#keys === 'failed';
    if (isFree && this.#opening === undefined) await inTime(this.#chain.close(), deadlineMs);
  }

  #schedule(): void {
    if (this.#inFlight === undefined) this.#batchTimer.start(this.#pending.waiting);
  }

  #flush(): void {
    const busy = this.#inFlight !== undefined || this.#opening !== undefined;
    const isIdle = this.#pending.isEmpty && !this.#chain.isHeadDue;
    if (busy || isIdle || !this.#chain.writable) return;
    const waitedMs = this.#pending.waiting > 0 ? this.#waitedMs : 0;
    const batch = this.#pending.take();
    this.#inFlight = { batch, waitedMs, waiters: this.#pending.takeWaiters() };
    this.#write(this.#inFlight);
  }

  #write(inFlight: InFlight): void {
    if (this.#keys === 'storing') return;
    const pending = this.#deps.keysReady();
    if (pending !== undefined) {
      this.#storeKeys(inFlight, pending);
      return;
    }
    this.#keys = undefined;
    try {
      this.#chain.write(inFlight.batch, (result) => {
        if (result instanceof Error) this.#fail(writeErrorOf(result));
        else this.#written(inFlight, result);
      });
    } catch (error) {
      // Nothing of the batch is in the file: it is written again, to another one.
      reportError(error);
      this.#chain.abandon();
      this.#fail({ code: 'batch-failed', reason: 'a batch could not be made' });
    }
  }

  /** Writes the batch when the keys of its records are stored: a record under a lost key could not be read. */
  #storeKeys(inFlight: InFlight, pending: Promise<void>): void {
    this.#keys = 'storing';
    pending.then(
      () => {
        this.#keys = undefined;
        // The disk may have failed meanwhile; `#tick` writes the batch then.
        if (this.#chain.writable) this.#write(inFlight);
      },
      (error: Error) => {
        this.#keys = 'failed';
        this.#fail(writeErrorOf(error));
      },
    );
  }

  #written(inFlight: InFlight, head: Head): void {
    this.#inFlight = undefined;
    this.#pending.giveBack(inFlight.batch.lines);
    this.#enter(undefined);
    callEach(inFlight.waiters, (waiter) => waiter.recorded());
    isolate(() => this.#deps.onSeal(head));
    const { size, age, first } = this.#chain.extent;
    const { segment } = this.#options;
    // The batch may be one without records, for a signed head; a segment without records has the name of the next one.
    const isOver = this.#pending.first > first && (size >= segment.size || age >= segment.age);
    // The last segment of a process ends with its last record, so that what somebody adds behind that is found.
    if (this.#closing !== undefined) this.#flush();
    else if (isOver) void this.#nextSegment();
    else if (this.#pending.waiting > 0) this.#schedule();
    this.#settle();
  }

  async #nextSegment(): Promise<void> {
    await this.#open(() => this.#chain.nextSegment(this.#pending.first));
    if (this.#chain.writable) isolate(() => this.#deps.onClosed());
  }

  /** Begins a segment by `begin`, then writes the batch or records that wait for it. */
  async #open(begin: () => Promise<void>): Promise<void> {
    if (this.#opening !== undefined) return;
    this.#opening = begin().then(
      () => undefined,
      (error: Error) => this.#fail(writeErrorOf(error)),
    );
    await this.#opening;
    this.#opening = undefined;
    if (!this.#chain.writable) return;
    if (this.#inFlight !== undefined) this.#write(this.#inFlight);
    else if (!this.#pending.isEmpty) this.#flush();
    else this.#enter(undefined);
  }

  #fail(error: WriteError): void {
    this.#enter(error);
    this.#giveUp();
    this.#settle();
  }

  #enter(state: WriteError | undefined): void {
    if (state?.reason === this.#state?.reason) return;
    this.#state = state;
    isolate(() => this.#deps.onState(state));
  }

  /** Tells all waiters that their records are not written. The records stay, to be written later. */
  #giveUp(): void {
    const waiters = [...(this.#inFlight?.waiters ?? []), ...this.#pending.takeWaiters()];
    if (this.#inFlight !== undefined) this.#inFlight.waiters = [];
    this.#tellUnrecorded(waiters);
  }

  #tellUnrecorded(waiters: readonly Waiter[]): void {
    if (waiters.length === 0) return;
    isolate(() => this.#deps.onUnrecorded(waiters.length));
    callEach(waiters, (waiter) => waiter.unrecorded());
  }

  /** Lets `close` go on when everything is written, or nothing can be. */
  #settle(): void {
    const done = this.#pending.isEmpty && this.#inFlight === undefined;
    if (done || this.#state !== undefined) this.#closing?.();
  }

  #tick(): void {
    const { deadlineMs } = this.#options;
    if (this.#waitMs() > deadlineMs && this.#state === undefined)
      this.#fail({ code: 'disk-timeout', reason: `the disk did not answer within ${deadlineMs} ms` });
    if (this.#keys === 'failed' && this.#inFlight !== undefined) this.#write(this.#inFlight);
    // A new segment is writable shortly before `#opening` settles; the batch must not be written twice.
    if (this.#opening !== undefined) return;
    if (!this.#chain.writable)
      void this.#open(() => this.#chain.reopen(this.#inFlight?.batch.first ?? this.#pending.first));
    else if (this.#inFlight === undefined) {
      if (this.#isOver()) void this.#nextSegment();
      else this.#flush();
      void this.#check();
    }
  }

  /**
   * Counts a tick, and returns how long the disk has kept somebody waiting. A clock would blame it for the time in which
   * this process stood still, in which nobody could hear its answer.
   */
  #waitMs(): number {
    if (this.#pending.waiting > 0) this.#waitedMs += TICK_MS;
    if (this.#inFlight === undefined) return this.#pending.waiting > 0 ? this.#waitedMs : 0;
    this.#inFlight.waitedMs += TICK_MS;
    return this.#inFlight.waitedMs;
  }

  /**
   * True if the segment has records and is old enough to be closed. Otherwise an idle process would keep them for ever.
   */
  #isOver(): boolean {
    const { age, first } = this.#chain.extent;
    return age >= this.#options.segment.age && this.#pending.first > first && !this.#checking;
  }

  async #check(): Promise<void> {
    if (this.#checking) return;
    this.#checking = true;
    const integrityError = await this.#chain.integrityError().catch(writeErrorOf);
    this.#checking = false;
    if (integrityError === undefined || this.#inFlight !== undefined || !this.#chain.writable) return;
    this.#chain.abandon();
    this.#fail(integrityError);
  }
}
