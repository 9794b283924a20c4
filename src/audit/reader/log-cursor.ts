import { type FileHandle, lstat } from 'node:fs/promises';
import { join } from 'node:path';
import { errorCode } from '../../base/error-code.ts';
import { ignoreSystemError } from '../../base/expected-errors.ts';
import { NEWLINE } from '../line.ts';
import { type Segment, segmentsIn } from '../segments/segment.ts';
import { LONGEST_LINE, openRegular, readBlocks } from '../segments/segment-reader.ts';

const CHUNK_BYTES = 256 * 1024;

/** The lines of one segment, as it grows. */
interface Source {
  readonly segment: Segment;
  /** The next whole lines; undefined: there are none for now. */
  next(): Promise<Buffer | undefined>;
  /** True if the path leads to another file by now, or the file became shorter. */
  replaced(): Promise<boolean>;
  close(): Promise<void>;
}

/** Reads one replica's log from the segment that holds a record, as it grows, segment after segment. */
export class LogCursor {
  readonly #folder: string;
  readonly #seq: number;
  #source: Source | undefined;

  /** `seq`: number of the record; before the oldest one: the oldest segment. */
  constructor(folder: string, seq: number) {
    this.#folder = folder;
    this.#seq = seq;
  }

  /**
   * The next whole lines, with headers and seals, about 256 KiB at most; undefined: there are none yet. After a failure
   * of the disk the same records come again, in another segment.
   * @throws Error if a file cannot be read
   */
  async next(): Promise<Buffer | undefined> {
    for (;;) {
      this.#source ??= await this.#open((segments) => holding(segments, this.#seq));
      const source = this.#source;
      if (source === undefined) return undefined;
      const bytes = await source.next();
      if (bytes !== undefined) return bytes;
      const { first } = source.segment;
      const replaced = await source.replaced();
      const later = (await segmentsIn(this.#folder)).some((segment) => segment.first > first);
      if (!replaced && !later) return undefined;
      // The segment no longer grows, but lines may have been added since its end was read.
      const rest = await source.next();
      if (rest !== undefined) return rest;
      await source.close();
      this.#source = await this.#open((segments) =>
        segments.find((segment) => (replaced ? segment.first >= first : segment.first > first)),
      );
    }
  }

  async close(): Promise<void> {
    await this.#source?.close();
  }

  async #open(choose: (segments: readonly Segment[]) => Segment | undefined): Promise<Source | undefined> {
    for (;;) {
      const segment = choose(await segmentsIn(this.#folder).catch(noneIfAbsent));
      if (segment === undefined) return undefined;
      const path = join(this.#folder, segment.name);
      try {
        return segment.compressed ? compressedSource(segment, path) : await plainSource(segment, path);
      } catch (error) {
        // Retention compressed or removed it since the folder was read.
        if (errorCode(error) !== 'ENOENT') throw error;
      }
    }
  }
}

function holding(segments: readonly Segment[], seq: number): Segment | undefined {
  return segments.findLast(({ first }) => first <= seq) ?? segments[0];
}

function compressedSource(segment: Segment, path: string): Source {
  const blocks = readBlocks(path);
  return {
    segment,
    async next() {
      for (;;) {
        const { value, done } = await blocks.next();
        if (done === true) return undefined;
        if (value.whole) return value.bytes;
      }
    },
    replaced: () => Promise.resolve(false),
    close: async () => void (await blocks.return()),
  };
}

async function plainSource(segment: Segment, path: string): Promise<Source> {
  const handle = await openRegular(path);
  const { ino } = await handle.stat();
  let offset = 0;
  return {
    segment,
    async next() {
      const bytes = await wholeLines(handle, offset);
      offset += bytes.length;
      return bytes.length === 0 ? undefined : bytes;
    },
    async replaced() {
      // A file that is gone was compressed or removed; the open handle still reads it to its end.
      const now = await lstat(path).catch(ignoreSystemError);
      return now !== undefined && (now.ino !== ino || now.size < offset);
    },
    close: () => handle.close(),
  };
}

/** The bytes from the offset up to the last line end; reads more if a line is longer than a chunk. */
async function wholeLines(handle: FileHandle, offset: number): Promise<Buffer> {
  for (let size = CHUNK_BYTES; ; size *= 2) {
    const { buffer, bytesRead } = await handle.read(Buffer.allocUnsafe(size), 0, size, offset);
    const end = buffer.subarray(0, bytesRead).lastIndexOf(NEWLINE) + 1;
    if (end > 0 || bytesRead < size || size > LONGEST_LINE) return buffer.subarray(0, end);
  }
}

function noneIfAbsent(error: unknown): Segment[] {
  if (errorCode(error) !== 'ENOENT') throw error;
  return [];
}
