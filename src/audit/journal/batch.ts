import { reportError } from '../../base/report-error.ts';
import type { RecentRecord, RecentRecords, Waiter } from '../audit.ts';
import { recordLine } from '../record.ts';

const LEAST_BYTES = 64 * 1024;
/** A buffer that a burst has made larger is given up when it is cleared. */
const MOST_KEPT = 1024 * 1024;
/** A UTF-16 code unit takes at most three bytes in UTF-8. */
const BYTES_PER_UNIT = 3;
/** Records without text that are kept at most. */
const MOST_ENTRIES = 64;
const SECOND_MS = 1000;

/** Stands in for a record whose text could not be made, so that no later record has to wait for it. */
const FAILED = '"kind":"admin","event":"record-failed"}';

/** Records that are written together under one seal. */
export interface Batch {
  readonly lines: LineBuffer;
  /** Numbers of the first and the last record. */
  readonly first: number;
  readonly last: number;
}

/** A record that has its number, but no text yet. */
interface Entry {
  /** Unix milliseconds. */
  readonly at: number;
  readonly text: (at: number) => string;
  readonly waiter: Waiter | undefined;
}

interface PendingDeps {
  /** Called for each record that got its text; `at`: Unix milliseconds. */
  readonly onRecord: (seq: number, at: number, record: string) => void;
  /** Called for a waiter whose record's text could not be made. */
  readonly onFailed: (waiter: Waiter) => void;
}

/**
 * Numbered records that are in no batch yet. They get their text many at a time: one by one, interleaved with the rest
 * of a request's work, it takes a third longer.
 */
export class PendingRecords {
  readonly #deps: PendingDeps;
  readonly #entries: Entry[] = [];
  readonly #timestamp = new Timestamp();
  #lines = new LineBuffer();
  /** For the next batch while one is being written. */
  #spare = new LineBuffer();
  #first: number;
  #next: number;
  #waiters: Waiter[] = [];

  /** `first`: number of the first record. */
  constructor(first: number, deps: PendingDeps) {
    this.#deps = deps;
    this.#first = first;
    this.#next = first;
  }

  /** Number of the first pending record, or, if there is none, of the next one. */
  get first(): number {
    return this.#first;
  }

  /** Number of the last record that was added. */
  get last(): number {
    return this.#next - 1;
  }

  get isEmpty(): boolean {
    return this.#next === this.#first;
  }

  /** Bytes of the records that have their text. */
  get size(): number {
    return this.#lines.size;
  }

  /** How many wait for one of the records. */
  get waiting(): number {
    return this.#waiters.length;
  }

  /** Adds a record, whose text is made later for its time `at`, in Unix milliseconds; returns its number. */
  add(text: (at: number) => string, waiter?: Waiter, at = Date.now()): number {
    const seq = this.#next;
    this.#next += 1;
    this.#entries.push({ at, text, waiter });
    if (waiter !== undefined) this.#waiters.push(waiter);
    if (this.#entries.length >= MOST_ENTRIES) this.#render();
    return seq;
  }

  /** Hands over the waiters, which the caller has to notify. */
  takeWaiters(): readonly Waiter[] {
    const waiters = this.#waiters;
    this.#waiters = [];
    return waiters;
  }

  /** All pending records as a batch. Its lines are to be given back before the next batch is taken. */
  take(): Batch {
    this.#render();
    const batch = { lines: this.#lines, first: this.#first, last: this.last };
    this.#lines = this.#spare;
    this.#first = this.#next;
    return batch;
  }

  /** Takes back the lines of a batch that was written. */
  giveBack(lines: LineBuffer): void {
    lines.clear();
    this.#spare = lines;
  }

  #render(): void {
    let seq = this.#next - this.#entries.length;
    for (const entry of this.#entries) {
      const record = this.#textOf(entry);
      this.#lines.add(recordLine(seq, this.#timestamp.of(entry.at), record));
      this.#deps.onRecord(seq, entry.at, record);
      seq += 1;
    }
    this.#entries.length = 0;
  }

  #textOf({ at: time, text, waiter }: Entry): string {
    try {
      return text(time);
    } catch (error) {
      reportError(error);
      const at = waiter === undefined ? -1 : this.#waiters.indexOf(waiter);
      for (const failed of at === -1 ? [] : this.#waiters.splice(at, 1)) this.#deps.onFailed(failed);
      return FAILED;
    }
  }
}

/** Formats times as RFC 3339 in UTC with milliseconds. Date alone takes half as long as the rest of a record. */
export class Timestamp {
  #milliseconds = Number.NaN;
  #second = Number.NaN;
  /** The text up to the point before the milliseconds. */
  #start = '';
  #text = '';

  /** `at`: Unix milliseconds. Fast if `at` is in the same second as before. */
  of(at: number): string {
    if (at === this.#milliseconds) return this.#text;
    this.#milliseconds = at;
    const second = Math.floor(at / SECOND_MS);
    if (second !== this.#second) {
      this.#second = second;
      this.#start = new Date(at).toISOString().slice(0, -'000Z'.length);
    }
    this.#text = `${this.#start}${String(at % SECOND_MS).padStart(3, '0')}Z`;
    return this.#text;
  }
}

/**
 * Lines as bytes in one buffer that is used again and again. As strings they would live long enough to be copied by
 * every garbage collection.
 */
export class LineBuffer {
  #bytes = Buffer.allocUnsafeSlow(LEAST_BYTES);
  #size = 0;
  readonly #ends: number[] = [];

  /** Bytes of all lines. */
  get size(): number {
    return this.#size;
  }

  /** The lines; valid until the next change. */
  get bytes(): Buffer {
    return this.#bytes.subarray(0, this.#size);
  }

  /** The index of the line end of each line. Looking for them would cost a tenth of the hashes of the lines. */
  get ends(): readonly number[] {
    return this.#ends;
  }

  /** Adds a line, given with its line end. */
  add(line: string): void {
    this.#makeRoom(line.length * BYTES_PER_UNIT);
    this.#size += this.#bytes.write(line, this.#size);
    this.#ends.push(this.#size - 1);
  }

  /** The lines and one more, which is not added; valid as long as `bytes`. */
  followedBy(line: string): Buffer {
    this.#makeRoom(line.length * BYTES_PER_UNIT);
    return this.#bytes.subarray(0, this.#size + this.#bytes.write(line, this.#size));
  }

  clear(): void {
    this.#size = 0;
    this.#ends.length = 0;
    if (this.#bytes.length > MOST_KEPT) this.#bytes = Buffer.allocUnsafeSlow(LEAST_BYTES);
  }

  #makeRoom(more: number): void {
    const needed = this.#size + more;
    if (needed <= this.#bytes.length) return;
    const larger = Buffer.allocUnsafeSlow(Math.max(needed, this.#bytes.length * 2));
    this.#bytes.copy(larger, 0, 0, this.#size);
    this.#bytes = larger;
  }
}

/** Records that are kept for the console. */
const RECENT_KEPT = 500;
/** Records after which none is kept until the console reads again: strings that live long cost CPU time. */
const UNREAD_AT_MOST = 5_000;

/** The last records in memory that does not grow, kept as long as they are read now and then. */
export class RecordRing implements RecentRecords {
  readonly #kept: RecentRecord[] = [];
  #count = 0;
  #unread = 0;

  add(seq: number, at: number, record: string): void {
    if (this.#unread >= UNREAD_AT_MOST) return;
    this.#unread += 1;
    if (this.#unread === UNREAD_AT_MOST) this.#kept.length = 0;
    else this.#kept[this.#count % RECENT_KEPT] = { seq, at, record };
    this.#count += 1;
  }

  since(position: number): { readonly records: readonly RecentRecord[]; readonly position: number } {
    this.#unread = 0;
    const records: RecentRecord[] = [];
    for (let at = Math.max(position, this.#count - RECENT_KEPT); at < this.#count; at += 1) {
      const record = this.#kept[at % RECENT_KEPT];
      if (record !== undefined) records.push(record);
    }
    return { records, position: this.#count };
  }
}
