import {
  close as closeCallback,
  constants,
  fdatasync,
  fsync as fsyncCallback,
  open as openCallback,
  write,
} from 'node:fs';
import { lstat, truncate, unlink } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { syncDirectory } from '../../base/durable-file.ts';
import { errorCode } from '../../base/error-code.ts';
import { ignoreAbsent } from '../../base/expected-errors.ts';
import { type Finding, finding } from '../findings.ts';
import { segmentName } from './segment.ts';
import { openRegular } from './segment-reader.ts';

const { O_APPEND, O_CREAT, O_EXCL, O_NOFOLLOW, O_WRONLY } = constants;
const openFile = promisify(openCallback);
const closeFile = promisify(closeCallback);
const syncFile = promisify(fsyncCallback);

/** The file that is written to. All calls use the thread pool, so a disk that hangs blocks nothing else. */
export class SegmentFile {
  readonly path: string;
  readonly #fd: number;
  readonly #inode: number;
  /** Bytes of the writes that succeeded. */
  #size: number;
  #foreign = false;

  private constructor(path: string, fd: number, inode: number, size: number) {
    this.path = path;
    this.#fd = fd;
    this.#inode = inode;
    this.#size = size;
  }

  /**
   * Creates a file, durably.
   * @throws Error with code EEXIST if the name is taken
   */
  static create(path: string): Promise<SegmentFile> {
    return SegmentFile.#open(path, O_WRONLY | O_APPEND | O_CREAT | O_EXCL | O_NOFOLLOW, 0);
  }

  /** Opens an existing file; `size`: its size in bytes. */
  static continue(path: string, size: number): Promise<SegmentFile> {
    return SegmentFile.#open(path, O_WRONLY | O_APPEND | O_NOFOLLOW, size);
  }

  static async #open(path: string, flags: number, size: number): Promise<SegmentFile> {
    const fd = await openFile(path, flags, 0o600);
    try {
      await syncDirectory(dirname(path));
      const { ino } = await lstat(path);
      return new SegmentFile(path, fd, ino, size);
    } catch (error) {
      await closeFile(fd);
      throw error;
    }
  }

  get size(): number {
    return this.#size;
  }

  /** Appends the bytes, and with `sync` makes them durable; `done` gets an error unless all of it succeeded. */
  append(bytes: Buffer, sync: boolean, done: (error: Error | null) => void): void {
    this.#append(bytes, (error) => {
      if (error !== null) {
        done(error);
        return;
      }
      const finish = (failure: Error | null): void => {
        if (failure === null) this.#size += bytes.length;
        done(failure);
      };
      if (sync) fdatasync(this.#fd, finish);
      else finish(null);
    });
  }

  #append(bytes: Buffer, done: (error: Error | null) => void): void {
    write(this.#fd, bytes, 0, bytes.length, null, (error, written) => {
      if (error !== null || written === bytes.length) done(error);
      // A full disk takes a part of the bytes; writing the rest fails with the reason.
      else this.#append(bytes.subarray(written), done);
    });
  }

  /**
   * The way in which the file at the path differs from what was written; undefined: it does not. Meaningless if anything
   * was appended during the call.
   */
  async integrityError(): Promise<Finding | undefined> {
    const expected = this.#size;
    try {
      const { ino, size } = await lstat(this.path);
      if (ino !== this.#inode) return finding('segment-replaced');
      if (size < expected) return finding('segment-truncated');
      return size > this.#size && expected === this.#size ? finding('segment-appended') : undefined;
    } catch (error) {
      if (errorCode(error) === 'ENOENT' || errorCode(error) === 'ENOTDIR') return finding('segment-gone');
      throw error;
    }
  }

  /** Makes `takeBack` do nothing: somebody else changed the file, and the change is evidence. */
  leaveAsItIs(): void {
    this.#foreign = true;
  }

  /**
   * Removes a batch that was written in part, since it is written again.
   * @returns true: the file has what was written before the batch; false: somebody else changed it, or nothing was
   * @throws Error if the disk does not allow it
   */
  async takeBack(): Promise<boolean> {
    if (this.#foreign) return false;
    try {
      const { ino, size } = await lstat(this.path);
      if (ino !== this.#inode) return false;
      if (this.#size === 0) await unlink(this.path);
      else if (size > this.#size) await truncate(this.path, this.#size);
      return this.#size > 0 && size >= this.#size;
    } catch (error) {
      if (errorCode(error) !== 'ENOENT' && errorCode(error) !== 'ENOTDIR') throw error;
      return false;
    }
  }

  /** Removes the file. */
  async takeBackWhole(): Promise<void> {
    this.#size = 0;
    await this.takeBack();
  }

  /** Makes everything durable. */
  sync(): Promise<void> {
    return syncFile(this.#fd);
  }

  close(): Promise<void> {
    return closeFile(this.#fd);
  }
}

/**
 * Makes what was written to a segment durable, by whichever process. One that is compressed or gone was.
 * @throws Error of the file system
 */
export async function syncSegment(folder: string, first: number): Promise<void> {
  await using handle = await openRegular(join(folder, segmentName(first))).catch(ignoreAbsent);
  if (handle === undefined) return;
  await handle.datasync();
  await syncDirectory(folder);
}
