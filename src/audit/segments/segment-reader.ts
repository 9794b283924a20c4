import { constants } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { pipeline } from 'node:stream';
import { createZstdDecompress, constants as zlib } from 'node:zlib';
import { errorCode } from '../../base/error-code.ts';
import { NEWLINE } from '../line.ts';

const COMPRESSED = '.zst';
const CHUNK_BYTES = 64 * 1024;
/** A record has a few KiB. A longer line is no record, and must not fill the memory. */
export const LONGEST_LINE = 1024 * 1024;
/** Memory that decompression may take, as a power of two. The gateway's own segments take 2 MiB. */
const WINDOW_LOG = 23;
const { O_NOFOLLOW, O_NONBLOCK, O_RDONLY } = constants;

/** Whole lines of a segment; the last block may be an incomplete line. */
export interface Block {
  readonly bytes: Buffer;
  readonly whole: boolean;
  /** Bytes of the file, compressed or not, that were read since the last block. */
  readonly stored: number;
}

/** An open segment. */
interface Source {
  /** Its content, uncompressed. */
  readonly chunks: AsyncIterable<Buffer>;
  /** Returns how many bytes of the file have been read. */
  readonly position: () => number;
}

/**
 * Reads a segment in blocks that end with a line. All blocks use the same memory: each is valid until the next is
 * requested. A line longer than 1 MiB ends the reading, as a last block that is not whole. `from`: bytes to skip, in a
 * plain file.
 * @throws Error if the file cannot be read or decompressed
 */
export async function* readBlocks(file: string, from = 0): AsyncGenerator<Block, void> {
  let held: Buffer = Buffer.allocUnsafeSlow(2 * CHUNK_BYTES);
  let size = 0;
  let told = 0;
  const { chunks, position } = await openSegment(file, from);
  const stored = (): number => {
    const before = told;
    told = position();
    return told - before;
  };
  for await (const chunk of chunks) {
    const end = chunk.lastIndexOf(NEWLINE) + 1;
    const whole = end === 0 ? 0 : size + end;
    if (size + chunk.length > held.length) held = grown(held, size);
    chunk.copy(held, size);
    size += chunk.length;
    if (whole > 0) {
      yield { bytes: held.subarray(0, whole), whole: true, stored: stored() };
      held.copyWithin(0, whole, size);
      size -= whole;
    }
    if (size > LONGEST_LINE) break;
  }
  if (size > 0) yield { bytes: held.subarray(0, size), whole: false, stored: stored() };
}

/** A larger buffer with the same content. It begins small: a megabyte for each short segment keeps the GC busy. */
function grown(held: Buffer, size: number): Buffer {
  const larger = Buffer.allocUnsafeSlow(Math.min(2 * held.length, LONGEST_LINE + CHUNK_BYTES));
  held.copy(larger, 0, 0, size);
  return larger;
}

/**
 * Opens a file of the audit folder, which anybody may have put there, for reading: does not follow a link, and does not
 * wait for a pipe.
 * @throws NotRegularError if it is no regular file; Error if there is none or it cannot be read
 */
export async function openRegular(path: string): Promise<FileHandle> {
  const handle = await open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK).catch((error) => {
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
    super(`${path} is no regular file`);
  }
}

async function openSegment(file: string, start: number): Promise<Source> {
  const compressed = file.endsWith(COMPRESSED);
  try {
    const handle = await openRegular(file);
    return compressed ? compressedSource(handle) : plainSource(handle, start);
  } catch (error) {
    // A running gateway may have compressed it since the folder was read.
    if (compressed || errorCode(error) !== 'ENOENT') throw error;
    return openSegment(`${file}${COMPRESSED}`, start);
  }
}

function plainSource(handle: FileHandle, start: number): Source {
  let position = start;
  const chunks = async function* (): AsyncGenerator<Buffer, void> {
    const chunk = Buffer.allocUnsafeSlow(CHUNK_BYTES);
    try {
      for (;;) {
        const { bytesRead } = await handle.read(chunk, 0, CHUNK_BYTES, position);
        if (bytesRead === 0) return;
        position += bytesRead;
        yield chunk.subarray(0, bytesRead);
      }
    } finally {
      await handle.close();
    }
  };
  return { chunks: chunks(), position: () => position - start };
}

function compressedSource(handle: FileHandle): Source {
  const plain = handle.createReadStream({ highWaterMark: CHUNK_BYTES });
  const stream = createZstdDecompress({
    chunkSize: CHUNK_BYTES,
    params: { [zlib.ZSTD_d_windowLogMax]: WINDOW_LOG },
  });
  // If one of them ends early, the pipeline ends the other; the consumer of `stream` gets the error.
  return { chunks: pipeline(plain, stream, () => undefined), position: () => plain.bytesRead };
}
