import { callEach, isolate, reportError } from '../../base/report-error.ts';
import type { Waiter } from '../audit.ts';
import type { Head } from '../seal.ts';
import { PendingRecords, tellRecorded, tellUnrecorded } from './batch.ts';
import { Gathering } from './batch-timer.ts';
import type { Batch, ChainWriter } from './chain-writer.ts';

/** How often the journal looks after itself, in milliseconds: deadlines, what became of its file, late records. */
const TICK_MS = 100;
/** Bytes of a batch that is written although nobody waits for it. */
const LARGE = 32 * 1024;
/** What is kept while nothing can be written, in bytes. */
const BACKLOG = 16 * 1024 * 1024;

export interface JournalOptions {
  /** How long a record may take to be written, in milliseconds. */
  readonly deadlineMs: number;
  /** Bytes and milliseconds after which a new file is begun. */
  readonly segment: { readonly size: number; readonly age: number };
}

export interface JournalEvents {
  /** Nothing can be written, for this reason; undefined: it can again. */
  readonly onState: (reason: string | undefined) => void;
  /** A batch is in the file. */
  readonly onSeal: (head: Head) => void;
  /** A record got its text; `at`: Unix milliseconds. */
  readonly onRecord: (seq: number, at: number, record: string) => void;
  /** So many were told that their records are not written. */
  readonly onUnrecorded: (count: number) => void;
  /** A segment was closed. */
  readonly onClosed: () => void;
}

interface Flight {
  readonly batch: Batch;
  /** When the first of its waiters came. */
  readonly since: number;
  waiters: readonly Waiter[];
}

/**
 * One process's records on their way into its files. What comes together, or while a batch is being written, is one
 * batch with one seal. A batch that could not be written is written again until it is.
 */
export class Journal {
  readonly #chain: ChainWriter;
  readonly #options: JournalOptions;
  readonly #events: JournalEvents;
  readonly #timer: NodeJS.Timeout;
  readonly #pending: PendingRecords;
  #since = 0;
  readonly #gathering: Gathering;
  #flight: Flight | undefined;
  #state: string | undefined;
  /** A segment is being begun. */
  #opening: Promise<void> | undefined;
  #checking = false;
  #closing: (() => void) | undefined;

  /** `nextSeq`: number of the first record to come. */
  constructor(chain: ChainWriter, nextSeq: number, options: JournalOptions, events: JournalEvents) {
    this.#chain = chain;
    this.#pending = new PendingRecords(nextSeq, events.onRecord, (waiter) => this.#tellUnrecorded([waiter]));
    this.#options = options;
    this.#events = events;
    this.#gathering = new Gathering(
      () => this.#pending.waiting,
      () => this.#flush(),
    );
    this.#timer = setInterval(() => this.#tick(), TICK_MS).unref();
  }

  /** Why nothing can be written; undefined: it can. */
  get failing(): string | undefined {
    return this.#state;
  }

  /** Whether so much waits to be written that no more should be kept. */
  get full(): boolean {
    return this.#pending.size + (this.#flight?.batch.lines.size ?? 0) >= BACKLOG;
  }

  /** Adds a record, whose text may be asked for later; gives its number. Without a waiter it is in no hurry. */
  append(text: () => string, waiter?: Waiter): number {
    if (waiter !== undefined && this.#pending.waiting === 0) this.#since = performance.now();
    const seq = this.#pending.add(text, waiter);
    if (waiter === undefined) {
      if (this.#pending.size >= LARGE) this.#schedule();
      return seq;
    }
    if (this.#state !== undefined) this.#giveUp();
    else this.#schedule();
    return seq;
  }

  /** What was added is to be written now and not with the next batch. */
  hurry(): void {
    if (!this.#pending.isEmpty) this.#schedule();
  }

  /** Writes what is left, if it can be, and lets go of the folder. */
  async close(): Promise<void> {
    await this.#opening;
    if (!this.#pending.isEmpty || this.#flight !== undefined) {
      await new Promise<void>((resolve) => {
        this.#closing = resolve;
        if (this.#flight === undefined && this.#state !== undefined) resolve();
        else this.#flush();
      });
    }
    clearInterval(this.#timer);
    await this.#opening;
    // A write that hangs would hold the end of the process, too.
    if (this.#flight === undefined) await this.#chain.close();
  }

  #schedule(): void {
    if (this.#flight === undefined) this.#gathering.begin();
  }

  #flush(): void {
    const busy = this.#flight !== undefined || this.#opening !== undefined;
    if (busy || this.#pending.isEmpty || !this.#chain.writable) return;
    const since = this.#pending.waiting > 0 ? this.#since : performance.now();
    const batch = this.#pending.take();
    this.#flight = { batch, since, waiters: this.#pending.takeWaiters() };
    this.#write(this.#flight);
  }

  #write(flight: Flight): void {
    try {
      this.#chain.write(flight.batch, (error, head) => {
        if (head === undefined) this.#fail(error?.message ?? 'the disk refused it');
        else this.#written(flight, head);
      });
    } catch (error) {
      // Nothing of the batch is in the file: it is written again, to another one.
      reportError(error);
      this.#chain.abandon();
      this.#fail('a batch could not be made');
    }
  }

  #written(flight: Flight, head: Head): void {
    this.#flight = undefined;
    this.#pending.giveBack(flight.batch.lines);
    this.#enter(undefined);
    callEach(flight.waiters, tellRecorded);
    isolate(() => this.#events.onSeal(head));
    const { size, age } = this.#chain.extent;
    const { segment } = this.#options;
    if (size >= segment.size || age >= segment.age) void this.#turnOver();
    else if (this.#closing !== undefined) this.#flush();
    else if (this.#pending.waiting > 0) this.#schedule();
    this.#settle();
  }

  async #turnOver(): Promise<void> {
    await this.#open(() => this.#chain.turnOver(this.#pending.first));
    if (this.#chain.writable) isolate(() => this.#events.onClosed());
  }

  /** Runs what begins a segment, and then writes what waits for it. */
  async #open(begin: () => Promise<void>): Promise<void> {
    if (this.#opening !== undefined) return;
    this.#opening = begin().then(
      () => undefined,
      (error: Error) => this.#fail(error.message),
    );
    await this.#opening;
    this.#opening = undefined;
    if (!this.#chain.writable) return;
    if (this.#flight !== undefined) this.#write(this.#flight);
    else if (!this.#pending.isEmpty) this.#flush();
    else this.#enter(undefined);
  }

  #fail(reason: string): void {
    this.#enter(reason);
    this.#giveUp();
    this.#settle();
  }

  #enter(state: string | undefined): void {
    if (state === this.#state) return;
    this.#state = state;
    isolate(() => this.#events.onState(state));
  }

  /** Tells everybody who waits that it was in vain. The records stay, to be written later. */
  #giveUp(): void {
    const waiters = [...(this.#flight?.waiters ?? []), ...this.#pending.takeWaiters()];
    if (this.#flight !== undefined) this.#flight.waiters = [];
    this.#tellUnrecorded(waiters);
  }

  #tellUnrecorded(waiters: readonly Waiter[]): void {
    if (waiters.length === 0) return;
    isolate(() => this.#events.onUnrecorded(waiters.length));
    callEach(waiters, tellUnrecorded);
  }

  /** Lets `close` go on when everything is written, or nothing can be. */
  #settle(): void {
    const done = this.#pending.isEmpty && this.#flight === undefined;
    if (done || this.#state !== undefined) this.#closing?.();
  }

  #tick(): void {
    const waiting = this.#flight ?? (this.#pending.waiting > 0 ? { since: this.#since } : undefined);
    const { deadlineMs } = this.#options;
    if (
      waiting !== undefined &&
      performance.now() - waiting.since > deadlineMs &&
      this.#state === undefined
    ) {
      this.#fail(`the disk did not answer within ${deadlineMs} ms`);
    }
    // The new file can be written to a little before that is done; the flight must not be written twice.
    if (this.#opening !== undefined) return;
    if (!this.#chain.writable)
      void this.#open(() => this.#chain.reopen(this.#flight?.batch.first ?? this.#pending.first));
    else if (this.#flight === undefined) {
      this.#flush();
      void this.#check();
    }
  }

  async #check(): Promise<void> {
    if (this.#checking) return;
    this.#checking = true;
    const objection = await this.#chain.objection().catch((error: Error) => error.message);
    this.#checking = false;
    if (objection === undefined || this.#flight !== undefined || !this.#chain.writable) return;
    this.#chain.abandon();
    this.#fail(objection);
  }
}
