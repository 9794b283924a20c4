import { constants } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { pipeline } from 'node:stream';
import { createZstdDecompress, constants as zlib } from 'node:zlib';
import { errorCode } from './segment.ts';

const COMPRESSED = '.zst';

const NEWLINE = 10;
const CHUNK_BYTES = 64 * 1024;
/** A record has a few KiB: a longer line is none, and must not fill the memory. */
export const LONGEST_LINE = 1024 * 1024;
/** Memory that a compressed segment may ask for, as a power of two; the gateway's own ask for 2 MiB. */
const WINDOW_LOG = 23;
const { O_NOFOLLOW, O_NONBLOCK, O_RDONLY } = constants;

/** Whole lines of a segment, or, once and last, what follows the last line end. */
export interface Block {
  readonly bytes: Buffer;
  readonly whole: boolean;
}

/**
 * A segment's bytes in pieces that end where a line does, each good until the next is asked for: all use the same
 * memory. A line beyond 1 MiB comes as a last piece that is not whole, and nothing after it. `from`: bytes to leave out, of a
 * file that is not compressed.
 * @throws Error when the file cannot be read or decompressed
 */
export async function* readBlocks(file: string, from = 0): AsyncGenerator<Block, void> {
  const held = Buffer.allocUnsafeSlow(LONGEST_LINE + CHUNK_BYTES);
  let size = 0;
  for await (const chunk of await openSegment(file, from)) {
    const end = chunk.lastIndexOf(NEWLINE) + 1;
    const whole = end === 0 ? 0 : size + end;
    chunk.copy(held, size);
    size += chunk.length;
    if (whole > 0) {
      yield { bytes: held.subarray(0, whole), whole: true };
      held.copyWithin(0, whole, size);
      size -= whole;
    }
    if (size > LONGEST_LINE) break;
  }
  if (size > 0) yield { bytes: held.subarray(0, size), whole: false };
}

/**
 * Opens a file of the audit folder for reading, whoever put it there: a link is not followed, and a pipe is not waited
 * for.
 * @throws Error when there is none, or something else than a regular file
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

async function openSegment(file: string, start: number): Promise<AsyncIterable<Buffer>> {
  const compressed = file.endsWith(COMPRESSED);
  try {
    const handle = await openRegular(file);
    return compressed ? decompressed(handle) : chunksOf(handle, start);
  } catch (error) {
    // A gateway that is running may have compressed it since its folder was read.
    if (compressed || errorCode(error) !== 'ENOENT') throw error;
    return openSegment(`${file}${COMPRESSED}`, start);
  }
}

async function* chunksOf(handle: FileHandle, start: number): AsyncGenerator<Buffer, void> {
  const chunk = Buffer.allocUnsafeSlow(CHUNK_BYTES);
  try {
    for (let position = start; ; ) {
      const { bytesRead } = await handle.read(chunk, 0, CHUNK_BYTES, position);
      if (bytesRead === 0) return;
      position += bytesRead;
      yield chunk.subarray(0, bytesRead);
    }
  } finally {
    await handle.close();
  }
}

function decompressed(handle: FileHandle): AsyncIterable<Buffer> {
  const plain = handle.createReadStream({ highWaterMark: CHUNK_BYTES });
  const stream = createZstdDecompress({
    chunkSize: CHUNK_BYTES,
    params: { [zlib.ZSTD_d_windowLogMax]: WINDOW_LOG },
  });
  // Whichever ends early, also because nobody reads on, ends the other; who reads is told of the error.
  return pipeline(plain, stream, () => undefined);
}
