import { mkdir, rename } from 'node:fs/promises';
import { join } from 'node:path';
import type { AuditKeys } from './keys.ts';
import type { Lines } from './lines.ts';
import { type Lock, lockFolder } from './lock.ts';
import { type Recovered, recover } from './recovery.ts';
import { type Head, sealed, sealLine } from './seal.ts';
import { errorCode, headerLine, segmentName } from './segment.ts';
import { SegmentFile } from './segment-file.ts';

const NOTHING = Buffer.alloc(0);

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
  #opened = Date.now();
  #previous: string;
  /** What is in the file already, and the next seal covers. */
  #covered: { readonly bytes: Buffer; readonly first: number | undefined };

  private constructor(options: ChainOptions, lock: Lock, { previous, unsealed }: Recovered) {
    this.#options = options;
    this.#lock = lock;
    this.#previous = previous;
    this.#covered = unsealed;
  }

  /**
   * Goes on where the process before ended; `recovered` says how that was.
   * @throws Error that says what to do when another process writes here, or the folder cannot be used
   */
  static async open(options: ChainOptions): Promise<{ chain: ChainWriter; recovered: Recovered }> {
    const { folder, keys } = options;
    await mkdir(folder, { recursive: true, mode: 0o700 });
    const lock = lockFolder(folder);
    try {
      const recovered = await recover(folder, keys);
      const chain = new ChainWriter(options, lock, recovered);
      if (recovered.file === undefined) await chain.#begin(recovered.nextSeq);
      else chain.#file = await SegmentFile.continue(recovered.file.path, recovered.file.size);
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
    const { replica, keys, sync } = this.#options;
    const { bytes, first = batch.first } = this.#covered;
    const lines = batch.lines.bytes;
    const content = bytes.length === 0 ? lines : Buffer.concat([bytes, lines]);
    const seal = sealed(keys, { replica, previous: this.#previous }, { first, last: batch.last }, content);
    file.append(batch.lines.followedBy(sealLine(seal)), sync, (error) => {
      if (error !== null) {
        this.#give(file);
        done(error);
        return;
      }
      this.#previous = seal.hmac;
      this.#covered = { bytes: NOTHING, first: undefined };
      done(null, { replica, seq: seal.last, hmac: seal.hmac });
    });
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
    await mkdir(folder, { recursive: true, mode: 0o700 });
    await broken?.takeBack();
    // A folder that was removed took its lock along.
    this.#lock.release();
    this.#lock = lockFolder(folder);
    await this.#begin(first);
    this.#broken = undefined;
    await broken?.close();
  }

  /** Lets go of the folder; what was written is durable then, if the disk allows. */
  async close(): Promise<void> {
    try {
      await this.#file?.sync();
      await this.#file?.close();
    } finally {
      this.#lock.release();
    }
  }

  #give(file: SegmentFile): void {
    this.#file = undefined;
    this.#broken = file;
  }

  async #begin(first: number): Promise<void> {
    const { folder, replica, keys, sync } = this.#options;
    const file = await createSegment(join(folder, segmentName(first)));
    const opened = new Date().toISOString();
    const header = { replica, first, previous: this.#previous, key: keys.id, opened };
    const bytes = Buffer.from(headerLine(header));
    try {
      await new Promise<void>((resolve, reject) => {
        file.append(bytes, sync, (error) => (error === null ? resolve() : reject(error)));
      });
    } catch (error) {
      await file.takeBack().catch(() => undefined);
      await file.close();
      throw error;
    }
    this.#covered = { bytes, first: undefined };
    this.#opened = Date.now();
    this.#file = file;
  }
}

/** What has the name already is nothing that the chain knows of, so it is kept beside it. */
async function createSegment(path: string): Promise<SegmentFile> {
  try {
    return await SegmentFile.create(path);
  } catch (error) {
    if (errorCode(error) !== 'EEXIST') throw error;
    await rename(path, `${path}.${Date.now()}.torn`);
    return SegmentFile.create(path);
  }
}
