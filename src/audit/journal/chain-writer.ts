import { rename } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { errorCode } from '../../base/error-code.ts';
import { ignoreAbsent, reportDefect } from '../../base/expected-errors.ts';
import type { Signed } from '../audit.ts';
import { checkpointLine, type SigningKey } from '../checkpoint.ts';
import { lineEnds, NEWLINE } from '../line.ts';
import { type Digest, leavesOf, MerkleTree } from '../merkle.ts';
import { type Head, MOST_BATCH, type Seal, sealFor, sealLine } from '../seal.ts';
import type { RetiredEnd } from '../segments/admin-records.ts';
import type { Archive } from '../segments/archive.ts';
import { type Continued, type Recovered, recover } from '../segments/recovery.ts';
import { type Lock, lockFolder, makeFolder } from '../segments/replica-folder.ts';
import { headerLine, segmentName, setAsideName } from '../segments/segment.ts';
import { SegmentFile } from '../segments/segment-file.ts';
import { headerTree, type LogTree } from '../segments/tree-walk.ts';
import type { Batch } from './batch.ts';
import { SignedTree } from './signed-tree.ts';

const NOTHING = Buffer.alloc(0);
/** Errors of a disk that can be read and takes nothing for now. */
const TAKES_NOTHING: ReadonlySet<string> = new Set(['ENOSPC', 'EDQUOT', 'EFBIG', 'EROFS', 'EIO']);

/** The folder is that of this replica alone; it is made if it does not exist. */
interface ChainOptions extends Archive {
  /** Signs heads; undefined: they are not signed. */
  readonly signing: SigningKey | undefined;
  /** True: records are to survive a crash of the machine. */
  readonly sync: boolean;
}

/** Why nothing can be written. */
export interface WriteError {
  /** The kind of finding about the file, the code of a system error, `disk-timeout` or `batch-failed`. */
  readonly code: string;
  readonly reason: string;
}

export function writeErrorOf(error: Error): WriteError {
  return { code: errorCode(error), reason: error.message };
}

/** State of the chain and the tree after a batch. */
interface ChainEnd {
  readonly previous: string;
  readonly tree: MerkleTree | undefined;
  /** The signed head behind the last record, as a checkpoint; undefined: there is none. */
  readonly checkpoint: string | undefined;
}

/** Writes batches, each with its seal, into segments. Its methods must not be called while a call is under way. */
export class ChainWriter {
  readonly #options: ChainOptions;
  #lock: Lock;
  #file: SegmentFile | undefined;
  /** The file that is no longer written to, until there is a new one. */
  #detached: SegmentFile | undefined;
  /** Result of the recovery, as long as nothing could be written after it. */
  #unstarted: Recovered | undefined;
  /** The segment that was begun last: its size without any record, and the `hmac` of the seal before it. */
  #begun: { readonly file: SegmentFile; readonly size: number; readonly previous: string } | undefined;
  /** When the segment was begun, in Unix milliseconds, and on the clock of `performance.now()`. */
  #opened = Date.now();
  #begunAt = performance.now();
  /** Number of the first record of the segment. */
  #first = 1;
  #previous: string;
  /** The last record that retention removed; the next header names it. */
  retired: RetiredEnd | undefined;
  /** Undefined: heads are not signed, or the segment was begun before they were. */
  #tree: SignedTree | undefined;

  private constructor(options: ChainOptions, lock: Lock, { previous, retired, tree }: Recovered) {
    this.#options = options;
    this.#lock = lock;
    this.#previous = previous;
    this.retired = retired;
    this.#tree = tree && this.#signedTree(tree);
  }

  /**
   * Opens the folder and continues the chain where the previous process ended; `recovered` says what was found. On a full
   * disk the chain is not `writable` at first.
   * @throws Error if another process writes to the folder, or the folder cannot be used; it says what to do
   */
  static async open(options: ChainOptions): Promise<{ chain: ChainWriter; recovered: Recovered }> {
    const { folder, replica, keys, signing } = options;
    await makeFolder(folder);
    const lock = lockFolder(folder);
    try {
      const recovered = await recover({ folder, replica, keys, publicKey: signing?.publicKey });
      const chain = new ChainWriter(options, lock, recovered);
      await chain.#start(recovered).catch((error) => {
        if (!TAKES_NOTHING.has(errorCode(error))) throw error;
        chain.#unstarted = recovered;
      });
      return { chain, recovered };
    } catch (error) {
      lock.release();
      throw error;
    }
  }

  /** False: there is no file to write to until `reopen` has made one. */
  get writable(): boolean {
    return this.#file !== undefined;
  }

  /** Size of the segment in bytes, its age in milliseconds, and the number of its first record. */
  get extent(): { readonly size: number; readonly age: number; readonly first: number } {
    // A clock that was set back must not keep the segment open.
    const age = Math.max(Date.now() - this.#opened, performance.now() - this.#begunAt);
    return { size: this.#file?.size ?? 0, age, first: this.#first };
  }

  /** The last signed head; undefined: heads are not signed. */
  get signed(): Signed | undefined {
    return this.#tree?.signed;
  }

  /** Has the batch with that record, which is not written yet, end with a signed head. */
  signWith(seq: number): void {
    this.#tree?.signWith(seq);
  }

  /** True if an empty batch is to be written, which gets a signed head. */
  get isHeadDue(): boolean {
    return this.#tree?.isDue === true;
  }

  /** Appends a batch with its seal; `done` gets the new head of the chain, or the error. */
  write(batch: Batch, done: (result: Head | Error) => void): void {
    const file = this.#file;
    if (file === undefined) {
      done(new Error('there is no segment to write to'));
      return;
    }
    const { replica, sync } = this.#options;
    const { bytes, end } = this.#sealed(batch);
    const { previous, tree, checkpoint } = end;
    file.append(bytes, sync, (error) => {
      if (error !== null) {
        this.#detach(file);
        done(error);
        return;
      }
      this.#previous = previous;
      if (tree !== undefined) this.#tree?.commit(tree, checkpoint);
      done({ replica, seq: batch.last, hmac: previous });
    });
  }

  /** The lines, to be appended in one write, with a seal, or several if they are many. */
  #sealed({ lines, first, last }: Batch): { readonly bytes: Buffer; readonly end: ChainEnd } {
    let end: ChainEnd = { previous: this.#previous, tree: undefined, checkpoint: undefined };
    if (lines.size <= MOST_BATCH) {
      const closed = this.#closed({ first, last }, lines, end);
      return { bytes: lines.followedBy(closed.text), end: closed.end };
    }
    const parts: Buffer[] = [];
    let next = first;
    for (let start = 0; start < lines.size; ) {
      const stop = partEnd(lines.bytes, start);
      const bytes = lines.bytes.subarray(start, stop);
      const ends = lineEnds(bytes);
      const closed = this.#closed({ first: next, last: next + ends.length - 1 }, { bytes, ends }, end);
      parts.push(bytes, Buffer.from(closed.text));
      end = closed.end;
      next += ends.length;
      start = stop;
    }
    return { bytes: Buffer.concat(parts), end };
  }

  /** Text that follows lines: a signed head, if it is time, and their seal. */
  #closed(
    range: { readonly first: number; readonly last: number },
    { bytes, ends }: { readonly bytes: Buffer; readonly ends: readonly number[] },
    before: ChainEnd,
  ): { readonly text: string; readonly end: ChainEnd } {
    const leaves = this.#leavesOf(bytes, ends);
    const tree = leaves && this.#tree?.extended(leaves, before.tree);
    const checkpoint = tree && this.#tree?.headOf(tree, bytes, ends);
    const headLine = checkpoint === undefined ? '' : checkpointLine(checkpoint);
    const covered = leaves === undefined ? bytes : [...leaves, ...leavesOf(Buffer.from(headLine))];
    const seal = this.#seal(range, covered, before.previous);
    return { text: `${headLine}${sealLine(seal)}`, end: { previous: seal.hmac, tree, checkpoint } };
  }

  #seal(
    range: { readonly first: number; readonly last: number },
    covered: Buffer | readonly Digest[],
    previous: string,
  ): Seal {
    const { keys, replica } = this.#options;
    return sealFor(keys, { replica, previous }, range, covered);
  }

  /** The hashes that a seal covers in a log with signed heads; undefined: heads are not signed. */
  #leavesOf(lines: Buffer, ends?: readonly number[]): readonly Digest[] | undefined {
    return this.#options.signing && leavesOf(lines, ends);
  }

  /** Closes the segment, with a signed head at its end, and begins the next, whose first record is `first`. */
  async nextSegment(first: number): Promise<void> {
    const file = this.#file;
    if (file === undefined) return;
    this.#detach(file);
    await this.#signEnd(file);
    await file.sync();
    await this.#begin(first);
    this.#detached = undefined;
    await file.close();
  }

  /** The change that somebody else made to the file; undefined: none was found. */
  async integrityError(): Promise<WriteError | undefined> {
    const file = this.#file;
    if (file === undefined) return undefined;
    const found = await file.integrityError();
    return found && { code: found.kind, reason: `${file.path} ${found.message}` };
  }

  /** Stops writing to the file, which somebody else changed, and leaves it as it is. */
  abandon(): void {
    const file = this.#file;
    if (file === undefined) return;
    file.leaveAsItIs();
    this.#detach(file);
  }

  /**
   * Begins a segment after a failure, whose first record is `first`, or continues one that has no record.
   * @throws Error while that is not possible
   */
  async reopen(first: number): Promise<void> {
    const { folder } = this.#options;
    const detached = this.#detached;
    await makeFolder(folder);
    const isWhole = detached !== undefined && (await this.#takeBack(detached));
    // If the folder was removed, its lock was removed with it.
    this.#lock.release();
    this.#lock = lockFolder(folder);
    if (this.#unstarted !== undefined) {
      await this.#start(this.#unstarted);
      this.#unstarted = undefined;
      return;
    }
    // A segment without records has the name of the next one, which would continue seals that are no longer there.
    if (isWhole && first === this.#first) await this.#resume(detached, first);
    else await this.#begin(first);
    this.#detached = undefined;
    await detached?.close();
  }

  /**
   * Signs the head, and makes the file durable, if the disk allows, and releases the folder. Nothing can be written
   * afterwards.
   */
  async close(): Promise<void> {
    const file = this.#file;
    this.#file = undefined;
    try {
      if (file !== undefined) await this.#signEnd(file);
      await file?.sync();
      await file?.close();
    } finally {
      this.#lock.release();
    }
  }

  /**
   * Removes a partial batch; a segment goes as a whole if it is as it was begun, since the next one has the same name.
   * @returns true if the file is left, with everything that was in it before
   */
  async #takeBack(detached: SegmentFile): Promise<boolean> {
    const begun = this.#begun;
    if (begun?.file !== detached || begun.size !== detached.size) return detached.takeBack();
    await detached.takeBackWhole();
    this.#begun = undefined;
    this.#previous = begun.previous;
    return false;
  }

  /** Continues the present segment after a failure. Its file is opened anew, since the old one may have been the cause. */
  async #resume({ path, size }: SegmentFile, first: number): Promise<void> {
    const file = await SegmentFile.continue(path, size);
    try {
      await this.#appendOpening(file, NOTHING, first);
    } catch (error) {
      await file.close();
      throw error;
    }
    this.#file = file;
  }

  /** Appends a signed head, unless the last record is under one. */
  async #signEnd(file: SegmentFile): Promise<void> {
    const signed = this.#tree;
    const checkpoint = signed?.lastHead();
    if (signed === undefined || checkpoint === undefined) return;
    const { first, tree } = signed.logTree;
    await this.#appendOpening(file, Buffer.from(checkpointLine(checkpoint)), first + tree.size);
    signed.commit(tree, checkpoint);
  }

  #signedTree(tree: LogTree): SignedTree | undefined {
    const { signing, replica } = this.#options;
    return signing && new SignedTree(signing, replica, tree);
  }

  #detach(file: SegmentFile): void {
    this.#file = undefined;
    this.#detached = file;
  }

  async #start({ file, nextSeq, clear }: Recovered): Promise<void> {
    await clear();
    if (file === undefined) await this.#begin(nextSeq);
    else await this.#continue(file, nextSeq);
  }

  /** Continues a file. The first line that a process appends is an opening seal: see `Seal`. */
  async #continue({ path, size, first, opened }: Continued, next: number): Promise<void> {
    const file = await SegmentFile.continue(path, size).catch(ignoreAbsent);
    // Somebody has removed it since it was read.
    if (file === undefined) return this.#begin(next);
    this.#opened = opened;
    this.#first = first;
    try {
      await this.#appendOpening(file, NOTHING, next);
      this.#file = file;
    } catch (error) {
      reportDefect(error);
      // Nothing can be written now; `reopen` begins the next segment when it can.
      this.#detached = file;
    }
  }

  async #begin(first: number): Promise<void> {
    const { folder, replica, keys } = this.#options;
    const file = await createSegment(join(folder, segmentName(first)));
    const opened = new Date().toISOString();
    const retired = this.retired === undefined ? {} : { retired: this.retired };
    const previous = this.#previous;
    const signed = this.#treeBefore(first);
    const tree = signed === undefined ? {} : { tree: headerTree(signed.logTree) };
    const header = { replica, first, previous, key: keys.id, opened, ...retired, ...tree };
    try {
      await this.#appendOpening(file, Buffer.from(headerLine(header)), first);
    } catch (error) {
      await file.takeBack().catch(reportDefect);
      await file.close();
      throw error;
    }
    this.#opened = Date.now();
    this.#begunAt = performance.now();
    this.#first = first;
    this.#tree = signed;
    this.#begun = { file, size: file.size, previous };
    this.#file = file;
  }

  /** The tree of the records before that one. What does not end there begins anew: a tree has no gaps. */
  #treeBefore(first: number): SignedTree | undefined {
    const { logTree } = this.#tree ?? {};
    const continues = logTree !== undefined && logTree.first + logTree.tree.size === first;
    return continues ? this.#tree : this.#signedTree({ first, tree: MerkleTree.empty() });
  }

  /** Appends the lines with an opening seal, which covers them and no record. */
  async #appendOpening(file: SegmentFile, lines: Buffer, next: number): Promise<void> {
    const covered = this.#leavesOf(lines) ?? lines;
    const seal = this.#seal({ first: next, last: next - 1 }, covered, this.#previous);
    const bytes = Buffer.concat([lines, Buffer.from(sealLine(seal))]);
    await new Promise<void>((resolve, reject) => {
      file.append(bytes, this.#options.sync, (error) => (error === null ? resolve() : reject(error)));
    });
    this.#previous = seal.hmac;
  }
}

/** The end of the next part of a large batch: whole lines, at least one. */
function partEnd(lines: Buffer, start: number): number {
  if (lines.length - start <= MOST_BATCH) return lines.length;
  const end = lines.lastIndexOf(NEWLINE, start + MOST_BATCH - 1) + 1;
  return end > start ? end : lines.indexOf(NEWLINE, start) + 1;
}

/** Creates a segment. An existing file of that name is not part of the chain, so it is set aside. */
async function createSegment(path: string): Promise<SegmentFile> {
  try {
    return await SegmentFile.create(path);
  } catch (error) {
    if (errorCode(error) !== 'EEXIST') throw error;
    await rename(path, join(path, '..', setAsideName(basename(path), 0)));
    return SegmentFile.create(path);
  }
}
