import { rename } from 'node:fs/promises';
import { basename, join } from 'node:path';
import type { AuditKeys } from '../keys.ts';
import { type Head, MOST_BATCH, type Seal, sealed, sealLine } from '../seal.ts';
import type { RetiredEnd } from '../segments/admin-records.ts';
import { type Lock, lockFolder } from '../segments/lock.ts';
import { type Recovered, recover } from '../segments/recovery.ts';
import { makeFolder } from '../segments/replica-folder.ts';
import { errorCode, headerLine, segmentName, setAsideName } from '../segments/segment.ts';
import { SegmentFile } from '../segments/segment-file.ts';
import type { Lines } from './lines.ts';

const NOTHING = Buffer.alloc(0);
const NEWLINE = 10;

export interface ChainOptions {
  /** Of this replica alone; made if it is not there. */
  readonly folder: string;
  readonly replica: string;
  readonly keys: AuditKeys;
  /** Whether records are to survive the machine. */
  readonly sync: boolean;
}

/** Lines of records, each with its end, and their numbers. */
export interface Batch {
  readonly lines: Lines;
  readonly first: number;
  readonly last: number;
}

/** Writes batches, each with its seal, into segments. One call at a time. */
export class ChainWriter {
  readonly #options: ChainOptions;
  #lock: Lock;
  #file: SegmentFile | undefined;
  /** What could not be written to, until there is a new one. */
  #broken: SegmentFile | undefined;
  /** The segment that was begun last: its size without any record, and the seal before it. */
  #begun: { readonly file: SegmentFile; readonly size: number; readonly previous: string } | undefined;
  #opened = Date.now();
  #previous: string;
  /** Up to where records were removed for their age: what the next header says. */
  retired: RetiredEnd | undefined;

  private constructor(options: ChainOptions, lock: Lock, { previous, retired }: Recovered) {
    this.#options = options;
    this.#lock = lock;
    this.#previous = previous;
    this.retired = retired;
  }

  /**
   * Goes on where the process before ended; `recovered` says how that was.
   * @throws Error that says what to do when another process writes here, or the folder cannot be used
   */
  static async open(options: ChainOptions): Promise<{ chain: ChainWriter; recovered: Recovered }> {
    const { folder } = options;
    await makeFolder(folder);
    const lock = lockFolder(folder);
    try {
      const recovered = await recover(options);
      const chain = new ChainWriter(options, lock, recovered);
      if (recovered.file === undefined) await chain.#begin(recovered.nextSeq);
      else await chain.#goOn(recovered.file, recovered.nextSeq);
      return { chain, recovered };
    } catch (error) {
      lock.release();
      throw error;
    }
  }

  /** Whether there is a file to write to; else `reopen` has to make one. */
  get writable(): boolean {
    return this.#file !== undefined;
  }

  /** Bytes of the segment, and its age in milliseconds. */
  get extent(): { readonly size: number; readonly age: number } {
    return { size: this.#file?.size ?? 0, age: Date.now() - this.#opened };
  }

  /** Appends a batch; `done` gets its seal, or why it is not written. */
  write(batch: Batch, done: (error: Error | null, head?: Head) => void): void {
    const file = this.#file;
    if (file === undefined) {
      done(new Error('there is no segment to write to'));
      return;
    }
    const { replica, sync } = this.#options;
    const { bytes, previous } = this.#sealed(batch);
    file.append(bytes, sync, (error) => {
      if (error !== null) {
        this.#give(file);
        done(error);
        return;
      }
      this.#previous = previous;
      done(null, { replica, seq: batch.last, hmac: previous });
    });
  }

  /** The lines with their seal, to be appended at once; of a large batch, in parts that have a seal each. */
  #sealed({ lines, first, last }: Batch): { readonly bytes: Buffer; readonly previous: string } {
    if (lines.size <= MOST_BATCH) {
      const seal = this.#seal({ first, last }, lines.bytes, this.#previous);
      return { bytes: lines.followedBy(sealLine(seal)), previous: seal.hmac };
    }
    const parts: Buffer[] = [];
    let previous = this.#previous;
    let next = first;
    for (let start = 0; start < lines.size; ) {
      const end = partEnd(lines.bytes, start);
      const part = lines.bytes.subarray(start, end);
      const range = { first: next, last: next + linesIn(part) - 1 };
      const seal = this.#seal(range, part, previous);
      parts.push(part, Buffer.from(sealLine(seal)));
      previous = seal.hmac;
      next = range.last + 1;
      start = end;
    }
    return { bytes: Buffer.concat(parts), previous };
  }

  #seal(range: { readonly first: number; readonly last: number }, lines: Buffer, previous: string): Seal {
    const { keys, replica } = this.#options;
    return sealed(keys, { replica, previous }, range, lines);
  }

  /** Closes the segment and begins the next, whose first record is `first`. */
  async turnOver(first: number): Promise<void> {
    const file = this.#file;
    if (file === undefined) return;
    this.#give(file);
    await file.sync();
    await this.#begin(first);
    this.#broken = undefined;
    await file.close();
  }

  /** Why the file is no longer what was written; undefined: it is. */
  async objection(): Promise<string | undefined> {
    const file = this.#file;
    const reason = await file?.objection();
    return reason === undefined ? undefined : `${file?.path} ${reason}`;
  }

  /** The file was changed by somebody else: it is not to be used any more. */
  abandon(): void {
    this.#file?.leaveAsItIs();
    if (this.#file !== undefined) this.#give(this.#file);
  }

  /** Begins a segment after a failure; what comes first in it is `first`. Rejects while that is not possible. */
  async reopen(first: number): Promise<void> {
    const { folder } = this.#options;
    const broken = this.#broken;
    await makeFolder(folder);
    if (broken !== undefined) await this.#takeBack(broken);
    // A folder that was removed took its lock along.
    this.#lock.release();
    this.#lock = lockFolder(folder);
    await this.#begin(first);
    this.#broken = undefined;
    await broken?.close();
  }

  /** Lets go of the folder; what was written is durable then, if the disk allows. Nothing can be written afterwards. */
  async close(): Promise<void> {
    const file = this.#file;
    this.#file = undefined;
    try {
      await file?.sync();
      await file?.close();
    } finally {
      this.#lock.release();
    }
  }

  /** A segment without any record gives its name to the next one, so it leaves the chain. */
  async #takeBack(broken: SegmentFile): Promise<void> {
    const begun = this.#begun;
    if (begun?.file !== broken || begun.size !== broken.size) return broken.takeBack();
    await broken.takeBackWhole();
    this.#begun = undefined;
    this.#previous = begun.previous;
  }

  #give(file: SegmentFile): void {
    this.#file = undefined;
    this.#broken = file;
  }

  /** Goes on with a file. What this process appends begins with a seal: see `Seal`. */
  async #goOn({ path, size }: { readonly path: string; readonly size: number }, next: number): Promise<void> {
    const file = await SegmentFile.continue(path, size);
    try {
      await this.#appendOpening(file, NOTHING, next);
      this.#file = file;
    } catch {
      // The disk takes nothing now: the next segment is begun when it does.
      this.#broken = file;
    }
  }

  async #begin(first: number): Promise<void> {
    const { folder, replica, keys } = this.#options;
    const file = await createSegment(join(folder, segmentName(first)));
    const opened = new Date().toISOString();
    const retired = this.retired === undefined ? {} : { retired: this.retired };
    const previous = this.#previous;
    const header = { replica, first, previous, key: keys.id, opened, ...retired };
    try {
      await this.#appendOpening(file, Buffer.from(headerLine(header)), first);
    } catch (error) {
      await file.takeBack().catch(() => undefined);
      await file.close();
      throw error;
    }
    this.#opened = Date.now();
    this.#begun = { file, size: file.size, previous };
    this.#file = file;
  }

  /** Appends the lines, and a seal that covers them and no record. */
  async #appendOpening(file: SegmentFile, lines: Buffer, next: number): Promise<void> {
    const seal = this.#seal({ first: next, last: next - 1 }, lines, this.#previous);
    const bytes = Buffer.concat([lines, Buffer.from(sealLine(seal))]);
    await new Promise<void>((resolve, reject) => {
      file.append(bytes, this.#options.sync, (error) => (error === null ? resolve() : reject(error)));
    });
    this.#previous = seal.hmac;
  }
}

/** Where a part of lines that gets a seal of its own ends: after whole lines, at least one. */
function partEnd(lines: Buffer, start: number): number {
  if (lines.length - start <= MOST_BATCH) return lines.length;
  const end = lines.lastIndexOf(NEWLINE, start + MOST_BATCH - 1) + 1;
  return end > start ? end : lines.indexOf(NEWLINE, start) + 1;
}

function linesIn(bytes: Buffer): number {
  let count = 0;
  for (let at = bytes.indexOf(NEWLINE); at !== -1; at = bytes.indexOf(NEWLINE, at + 1)) count += 1;
  return count;
}

/** What has the name already is nothing that the chain knows of, so it is kept beside it. */
async function createSegment(path: string): Promise<SegmentFile> {
  try {
    return await SegmentFile.create(path);
  } catch (error) {
    if (errorCode(error) !== 'EEXIST') throw error;
    await rename(path, join(path, '..', setAsideName(basename(path), 0)));
    return SegmentFile.create(path);
  }
}
