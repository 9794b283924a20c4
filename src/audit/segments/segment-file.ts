import {
  close as closeCallback,
  constants,
  fdatasync,
  fsync as fsyncCallback,
  open as openCallback,
  write,
} from 'node:fs';
import { lstat, open, truncate, unlink } from 'node:fs/promises';
import { dirname } from 'node:path';
import { promisify } from 'node:util';
import { errorCode } from './segment.ts';

const { O_APPEND, O_CREAT, O_EXCL, O_NOFOLLOW, O_WRONLY } = constants;
const openFile = promisify(openCallback);
const closeFile = promisify(closeCallback);
const syncFile = promisify(fsyncCallback);

/** The file that is written to. Everything goes through the thread pool: a disk that hangs holds nobody else. */
export class SegmentFile {
  readonly path: string;
  readonly #fd: number;
  readonly #inode: number;
  /** Bytes that were written whole, and not taken back. */
  #size: number;
  #foreign = false;

  private constructor(path: string, fd: number, inode: number, size: number) {
    this.path = path;
    this.#fd = fd;
    this.#inode = inode;
    this.#size = size;
  }

  /** A new file, there for good before it is used. Rejects when one of that name exists. */
  static create(path: string): Promise<SegmentFile> {
    return SegmentFile.#open(path, O_WRONLY | O_APPEND | O_CREAT | O_EXCL | O_NOFOLLOW, 0);
  }

  /** Goes on with a file of that size. */
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

  /** Appends the bytes, and with `sync` makes them durable; `done` gets an error if that did not succeed whole. */
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
      // A disk that fills up takes a part; trying the rest tells the reason.
      else this.#append(bytes.subarray(written), done);
    });
  }

  /**
   * Why what was written is no longer what the path leads to; undefined: it is. Means nothing if anything was
   * appended meanwhile.
   */
  async objection(): Promise<string | undefined> {
    const expected = this.#size;
    try {
      const { ino, size } = await lstat(this.path);
      if (ino !== this.#inode) return 'was replaced by another file';
      if (size < expected) return 'became shorter than what was written';
      return size > this.#size && expected === this.#size ? 'holds more than what was written' : undefined;
    } catch (error) {
      if (errorCode(error) === 'ENOENT' || errorCode(error) === 'ENOTDIR') return 'is gone';
      throw error;
    }
  }

  /** Somebody else changed the file: what they did is evidence, and stays. */
  leaveAsItIs(): void {
    this.#foreign = true;
  }

  /** Takes back what was written in part: that batch is written again elsewhere. Rejects when it cannot. */
  async takeBack(): Promise<void> {
    if (this.#foreign) return;
    try {
      const { ino, size } = await lstat(this.path);
      if (ino !== this.#inode) return;
      if (this.#size === 0) await unlink(this.path);
      else if (size > this.#size) await truncate(this.path, this.#size);
    } catch (error) {
      if (errorCode(error) !== 'ENOENT' && errorCode(error) !== 'ENOTDIR') throw error;
    }
  }

  /** The same for all that was written: removes the file. */
  takeBackWhole(): Promise<void> {
    this.#size = 0;
    return this.takeBack();
  }

  /** Makes everything durable. */
  sync(): Promise<void> {
    return syncFile(this.#fd);
  }

  close(): Promise<void> {
    return closeFile(this.#fd);
  }
}

/** Makes durable which files a directory has. */
export async function syncDirectory(directory: string): Promise<void> {
  const handle = await open(directory, constants.O_RDONLY);
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}
