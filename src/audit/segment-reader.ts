import { open } from 'node:fs/promises';
import { createZstdDecompress } from 'node:zlib';
import { errorCode } from './segment.ts';

const COMPRESSED = '.zst';

const NEWLINE = 10;
const CHUNK_BYTES = 1024 * 1024;
/** A record has a few KiB: a longer line is none, and must not fill the memory. */
const LONGEST_LINE = 1024 * 1024;

/** Whole lines of a segment, or, once and last, what follows the last line end. */
export interface Block {
  readonly bytes: Buffer;
  readonly whole: boolean;
}

/**
 * A segment's bytes in pieces that end where a line does. A line beyond 1 MiB comes as a last piece that is not
 * whole, and nothing after it.
 * @throws Error when the file cannot be read or decompressed
 */
export async function* readBlocks(file: string): AsyncGenerator<Block, void> {
  let rest = Buffer.alloc(0);
  for await (const chunk of await openSegment(file)) {
    const end = chunk.lastIndexOf(NEWLINE) + 1;
    if (end === 0) {
      rest = Buffer.concat([rest, chunk]);
      if (rest.length > LONGEST_LINE) break;
      continue;
    }
    yield { bytes: Buffer.concat([rest, chunk.subarray(0, end)]), whole: true };
    rest = Buffer.from(chunk.subarray(end));
  }
  if (rest.length > 0) yield { bytes: rest, whole: false };
}

/** The lines of a segment that are whole, in order, as text; header and seals among them. */
export async function* readLines(file: string): AsyncGenerator<string, void> {
  for await (const { bytes, whole } of readBlocks(file)) {
    if (whole) yield* bytes.toString('utf8').slice(0, -1).split('\n');
  }
}

async function openSegment(file: string): Promise<AsyncIterable<Buffer>> {
  const compressed = file.endsWith(COMPRESSED);
  try {
    const plain = (await open(file)).createReadStream({ highWaterMark: CHUNK_BYTES });
    return compressed ? decompressed(plain) : (plain as AsyncIterable<Buffer>);
  } catch (error) {
    // A gateway that is running may have compressed it since its folder was read.
    if (compressed || errorCode(error) !== 'ENOENT') throw error;
    return openSegment(`${file}${COMPRESSED}`);
  }
}

function decompressed(plain: NodeJS.ReadableStream): AsyncIterable<Buffer> {
  const stream = createZstdDecompress({ chunkSize: CHUNK_BYTES });
  plain.on('error', (error) => stream.destroy(error));
  return plain.pipe(stream);
}
