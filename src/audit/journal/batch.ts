import { reportError } from '../../base/report-error.ts';
import type { Waiter } from '../audit.ts';
import { recordLine } from '../record.ts';
import type { Batch } from './chain-writer.ts';
import { Lines } from './lines.ts';
import { Timestamp } from './timestamp.ts';

/** Records that get their text at the latest when there are so many. */
const MOST_ENTRIES = 64;

/** Stands in for a record whose text could not be made, so that no later record has to wait for it. */
const FAILED = '"kind":"admin","event":"record-failed"}';

export function tellRecorded(waiter: Waiter): void {
  waiter.recorded();
}

export function tellUnrecorded(waiter: Waiter): void {
  waiter.unrecorded();
}

/** A record that has its place in the log, but no text yet. */
interface Entry {
  /** Unix milliseconds. */
  readonly at: number;
  readonly text: () => string;
  readonly waiter: Waiter | undefined;
}

/**
 * Records with their numbers that no batch has yet. They get their text many at a time: one by one, among all else that
 * a request takes, that costs a third more.
 */
export class PendingRecords {
  readonly #onRecord: (seq: number, at: number, record: string) => void;
  readonly #entries: Entry[] = [];
  readonly #timestamp = new Timestamp();
  #lines = new Lines();
  /** For the next batch while one is being written. */
  #spare = new Lines();
  #first: number;
  #next: number;
  #waiters: Waiter[] = [];
  readonly #onFailed: (waiter: Waiter) => void;

  /**
   * `first`: number of the first record. `onRecord` is told of each that got its text; `at` is Unix milliseconds.
   * `onFailed` is told of a waiter whose record can have none.
   */
  constructor(
    first: number,
    onRecord: (seq: number, at: number, record: string) => void,
    onFailed: (waiter: Waiter) => void,
  ) {
    this.#onFailed = onFailed;
    this.#first = first;
    this.#next = first;
    this.#onRecord = onRecord;
  }

  /** Number of the first of them, or, without any, of the next. */
  get first(): number {
    return this.#first;
  }

  get isEmpty(): boolean {
    return this.#next === this.#first;
  }

  /** Bytes of those that have their text. */
  get size(): number {
    return this.#lines.size;
  }

  /** Adds a record, whose text is asked for later; gives its number. */
  add(text: () => string, waiter?: Waiter): number {
    const seq = this.#next;
    this.#next += 1;
    this.#entries.push({ at: Date.now(), text, waiter });
    if (waiter !== undefined) this.#waiters.push(waiter);
    if (this.#entries.length >= MOST_ENTRIES) this.#render();
    return seq;
  }

  /** Who waits for one of them: how many, … */
  get waiting(): number {
    return this.#waiters.length;
  }

  /** … and which, to be told by the caller. */
  takeWaiters(): readonly Waiter[] {
    const waiters = this.#waiters;
    this.#waiters = [];
    return waiters;
  }

  /** All of them as a batch, whose lines are to be given back. One at a time. */
  take(): Batch {
    this.#render();
    const batch = { lines: this.#lines, first: this.#first, last: this.#next - 1 };
    this.#lines = this.#spare;
    this.#first = this.#next;
    return batch;
  }

  /** Takes back the lines of a batch that is done with. */
  giveBack(lines: Lines): void {
    lines.clear();
    this.#spare = lines;
  }

  #render(): void {
    let seq = this.#next - this.#entries.length;
    for (const entry of this.#entries) {
      const record = this.#textOf(entry);
      this.#lines.add(recordLine(seq, this.#timestamp.of(entry.at), record));
      this.#onRecord(seq, entry.at, record);
      seq += 1;
    }
    this.#entries.length = 0;
  }

  #textOf({ text, waiter }: Entry): string {
    try {
      return text();
    } catch (error) {
      reportError(error);
      const at = waiter === undefined ? -1 : this.#waiters.indexOf(waiter);
      for (const failed of at === -1 ? [] : this.#waiters.splice(at, 1)) this.#onFailed(failed);
      return FAILED;
    }
  }
}
