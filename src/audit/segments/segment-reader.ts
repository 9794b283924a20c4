import { constants } from 'node:fs';
import { type FileHandle, lstat, open } from 'node:fs/promises';
import { pipeline } from 'node:stream';
import { createZstdDecompress, constants as zlib } from 'node:zlib';
import { errorCode } from '../../base/error-code.ts';
import { ignoreSystemError } from '../../base/expected-errors.ts';
import { NEWLINE } from '../line.ts';
import { LARGEST_BATCH, SEAL_START } from '../seal.ts';
import { parseHeader, type SegmentHeader } from './segment.ts';

const COMPRESSED = '.zst';
const CHUNK_BYTES = 64 * 1024;
/** A record has a few KiB. A longer line is not a record, and must not fill the memory. */
export const LONGEST_LINE = 1024 * 1024;
/** Memory that decompression may take, as a power of two. The gateway's own segments take 2 MiB. */
const WINDOW_LOG = 23;
const SEAL_LINE = Buffer.from(`\n${SEAL_START}`);
const { O_NOFOLLOW, O_NONBLOCK, O_RDONLY } = constants;

/** Reads a segment block by block, and a plain one on as it grows. */
export class SegmentReader {
  readonly #source: Source;
  /** How blocks end: with the last whole line that was read, or with the last seal. */
  readonly #until: 'line' | 'seal';
  #held: Buffer = Buffer.allocUnsafeSlow(2 * CHUNK_BYTES);
  #size = 0;
  /** Bytes of the last block, and up to the end of the last whole line. */
  #given = 0;
  #lines = 0;
  #storedBefore = 0;

  private constructor(source: Source, until: 'line' | 'seal') {
    this.#source = source;
    this.#until = until;
  }

  /** @throws Error if there is no such file, or it cannot be read */
  static async open(file: string, until: 'line' | 'seal'): Promise<SegmentReader> {
    return new SegmentReader(await openSource(file), until);
  }

  /**
   * The next block, valid until the next call; undefined: there is none for now. More than `LARGEST_BATCH` without a
   * seal, or a line longer than `LONGEST_LINE`, ends the reading.
   * @throws Error if the file cannot be read or decompressed
   */
  async next(): Promise<Buffer | undefined> {
    this.#drop();
    while (this.#lines <= LARGEST_BATCH && this.#size - this.#lines <= LONGEST_LINE) {
      const chunk = await this.#source.read();
      if (chunk === undefined) return undefined;
      this.#add(chunk);
      this.#given = this.#until === 'line' ? this.#lines : sealEnd(this.#held, this.#lines);
      if (this.#given > 0) return this.#held.subarray(0, this.#given);
    }
    return undefined;
  }

  /** What was read behind the last block. */
  get rest(): Buffer {
    return this.#held.subarray(this.#given, this.#size);
  }

  /** Bytes of the file, compressed or not, that were read since the last call. */
  stored(): number {
    const before = this.#storedBefore;
    this.#storedBefore = this.#source.position();
    return this.#storedBefore - before;
  }

  /** True if the path leads to another file by now, or the file became shorter. */
  replaced(): Promise<boolean> {
    return this.#source.replaced();
  }

  close(): Promise<void> {
    return this.#source.close();
  }

  #drop(): void {
    this.#held.copyWithin(0, this.#given, this.#size);
    this.#size -= this.#given;
    this.#lines -= this.#given;
    this.#given = 0;
  }

  #add(chunk: Buffer): void {
    const needed = this.#size + chunk.length;
    if (needed > this.#held.length) {
      // It begins small: megabytes for each short segment keep the GC busy.
      const larger = Buffer.allocUnsafeSlow(Math.max(needed, 2 * this.#held.length));
      this.#held.copy(larger, 0, 0, this.#size);
      this.#held = larger;
    }
    chunk.copy(this.#held, this.#size);
    const end = chunk.lastIndexOf(NEWLINE) + 1;
    if (end > 0) this.#lines = this.#size + end;
    this.#size = needed;
  }
}

/** Index of the last seal in whole lines before `end`; -1: there is none. */
export function lastSeal(lines: Buffer, end: number): number {
  // A negative offset would count from the end.
  const before = end < 2 ? -1 : lines.lastIndexOf(SEAL_LINE, end - 2);
  if (before !== -1) return before + 1;
  return end > 0 && lines.toString('latin1', 0, SEAL_START.length) === SEAL_START ? 0 : -1;
}

/** The end of the line of the last seal before `end`; 0: there is none. */
function sealEnd(lines: Buffer, end: number): number {
  const seal = lastSeal(lines, end);
  return seal === -1 ? 0 : lines.indexOf(NEWLINE, seal) + 1;
}

/** A part of a file. */
interface Block {
  readonly bytes: Buffer;
  /** True: it ends as blocks do. False: it is what follows the last such end, possibly nothing. */
  readonly whole: boolean;
  /** Bytes of the file, compressed or not, that were read for it. */
  readonly stored: number;
}

/**
 * Reads a file in blocks that end with a line, or with a seal; the last one is not whole. All blocks use the same memory:
 * each is valid until the next is requested. What `SegmentReader.next` says ends the reading.
 * @throws Error if the file cannot be read or decompressed
 */
export async function* readBlocks(
  file: string,
  until: 'line' | 'seal' = 'line',
): AsyncGenerator<Block, void> {
  const reader = await SegmentReader.open(file, until);
  try {
    for (let bytes = await reader.next(); bytes !== undefined; bytes = await reader.next()) {
      yield { bytes, whole: true, stored: reader.stored() };
    }
    yield { bytes: reader.rest, whole: false, stored: reader.stored() };
  } finally {
    await reader.close();
  }
}

/** The header of a segment as it stands there; undefined: it has none. @throws Error if the file cannot be read */
export async function headerOf(file: string): Promise<SegmentHeader | undefined> {
  for await (const { bytes } of readBlocks(file)) {
    return parseHeader(bytes.toString('utf8', 0, bytes.indexOf(NEWLINE)));
  }
  return undefined;
}

/** Reads a small file, at most `largest` bytes of it. @throws as `openRegular` */
export async function readSmall(path: string, largest: number): Promise<string> {
  await using handle = await openRegular(path);
  const { bytesRead, buffer } = await handle.read(Buffer.alloc(largest), 0, largest, 0);
  return buffer.toString('utf8', 0, bytesRead);
}

/**
 * Opens a file which anybody may have put there, for reading unless `access` says otherwise: does not follow a link, and
 * does not wait for a pipe.
 * @throws NotRegularError if it is not a regular file; Error if there is none or it cannot be read
 */
export async function openRegular(path: string, access = O_RDONLY): Promise<FileHandle> {
  const handle = await open(path, access | O_NOFOLLOW | O_NONBLOCK).catch((error) => {
    throw ['ELOOP', 'ENXIO'].includes(errorCode(error)) ? new NotRegularError(path) : error;
  });
  try {
    if (!(await handle.stat()).isFile()) throw new NotRegularError(path);
    return handle;
  } catch (error) {
    await handle.close();
    throw error;
  }
}

/** A link, pipe or directory stands where a file of the log should be. */
export class NotRegularError extends Error {
  constructor(path: string) {
    super(`${path} is not a regular file`);
  }
}

/** An open segment. */
interface Source {
  /** The next bytes of its content, uncompressed; undefined: there are none for now. */
  read(): Promise<Buffer | undefined>;
  /** How many bytes of the file have been read. */
  position(): number;
  replaced(): Promise<boolean>;
  close(): Promise<void>;
}

async function openSource(file: string): Promise<Source> {
  const compressed = file.endsWith(COMPRESSED);
  try {
    const handle = await openRegular(file);
    return compressed ? compressedSource(handle) : await plainSource(file, handle);
  } catch (error) {
    // A running gateway may have compressed it since the folder was read.
    if (compressed || errorCode(error) !== 'ENOENT') throw error;
    return openSource(`${file}${COMPRESSED}`);
  }
}

async function plainSource(path: string, handle: FileHandle): Promise<Source> {
  const { ino } = await handle.stat();
  const chunk = Buffer.allocUnsafeSlow(CHUNK_BYTES);
  let position = 0;
  return {
    async read() {
      const { bytesRead } = await handle.read(chunk, 0, CHUNK_BYTES, position);
      position += bytesRead;
      return bytesRead === 0 ? undefined : chunk.subarray(0, bytesRead);
    },
    position: () => position,
    async replaced() {
      // A file that is gone was compressed or removed; the open handle still reads it to its end.
      const now = await lstat(path).catch(ignoreSystemError);
      return now !== undefined && (now.ino !== ino || now.size < position);
    },
    close: () => handle.close(),
  };
}

function compressedSource(handle: FileHandle): Source {
  const plain = handle.createReadStream({ highWaterMark: CHUNK_BYTES });
  const stream = createZstdDecompress({
    chunkSize: CHUNK_BYTES,
    params: { [zlib.ZSTD_d_windowLogMax]: WINDOW_LOG },
  });
  // If one of them ends early, the pipeline ends the other; the consumer of `stream` gets the error.
  const chunks: AsyncIterator<Buffer> = pipeline(plain, stream, () => undefined)[Symbol.asyncIterator]();
  return {
    read: async () => (await chunks.next()).value,
    position: () => plain.bytesRead,
    replaced: () => Promise.resolve(false),
    close: async () => void (await chunks.return?.()),
  };
}
