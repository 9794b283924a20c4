import { reportError } from '../base/report-error.ts';
import type { Batch } from './chain-writer.ts';
import { Lines } from './lines.ts';
import { recordLine } from './record.ts';
import { Timestamp } from './timestamp.ts';

/** Records that get their text at the latest when there are so many. */
const MOST_ENTRIES = 64;

/** Stands in for a record whose text could not be made, so that no later record has to wait for it. */
const FAILED = '"kind":"admin","event":"record-failed"}';

/** A record that has its place in the log, but no text yet. */
interface Entry {
  /** Unix milliseconds. */
  readonly at: number;
  readonly text: () => string;
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
  /** Numbers of those that have no text of their own. */
  #failed: number[] = [];

  /** `first`: number of the first record. `onRecord` is told of each that got its text; `at` is Unix milliseconds. */
  constructor(first: number, onRecord: (seq: number, at: number, record: string) => void) {
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
  add(text: () => string): number {
    const seq = this.#next;
    this.#next += 1;
    this.#entries.push({ at: Date.now(), text });
    if (this.#entries.length >= MOST_ENTRIES) this.#render();
    return seq;
  }

  /** All of them as a batch, whose lines are to be given back. One at a time. `failed`: numbers of those without text. */
  take(): Batch & { readonly failed: readonly number[] } {
    this.#render();
    const failed = this.#failed;
    if (failed.length > 0) this.#failed = [];
    const batch = { lines: this.#lines, first: this.#first, last: this.#next - 1, failed };
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
    for (const { at, text } of this.#entries) {
      const record = this.#textOf(seq, text);
      this.#lines.add(recordLine(seq, this.#timestamp.of(at), record));
      this.#onRecord(seq, at, record);
      seq += 1;
    }
    this.#entries.length = 0;
  }

  #textOf(seq: number, text: () => string): string {
    try {
      return text();
    } catch (error) {
      this.#failed.push(seq);
      reportError(error);
      return FAILED;
    }
  }
}
