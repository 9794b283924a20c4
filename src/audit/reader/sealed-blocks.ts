import { join } from 'node:path';
import { messageOf } from '../../base/error-code.ts';
import { reportDefect } from '../../base/expected-errors.ts';
import { type Finding, finding, type PlacedFinding } from '../findings.ts';
import type { AuditKeys } from '../keys.ts';
import { linesOf, lineType } from '../line.ts';
import { ChainWalk } from '../segments/chain-walk.ts';
import { type Segment, segmentsIn } from '../segments/segment.ts';
import { SegmentReader } from '../segments/segment-reader.ts';
import { timeRangeOf } from '../segments/time-index.ts';
import type { PseudonymReader } from './pseudonym-reader.ts';
import { LATEST, type Query } from './query.ts';

export interface ReadOptions {
  readonly directory: string;
  /** The current key first, then those that sealed earlier segments. */
  readonly keys: readonly [AuditKeys, ...AuditKeys[]];
  /** Called for each block that was read: its bytes, uncompressed, and how many bytes of the file it took. */
  readonly onBytes: (count: number, stored: number) => void;
  /** Called for a file of the log that is not read, since nothing in it can count. */
  readonly onSkipped?: (file: string) => void;
  /** Called for a part of the log that cannot be read or trusted; the search goes on with the rest. */
  readonly onUnreadable: (finding: PlacedFinding) => void;
  /** Called for lines that are left out without being an error: the end of a log that is being written. */
  readonly onNote: (finding: PlacedFinding) => void;
  /** Reveals values that are recorded as pseudonyms; left out: they stay as they are. */
  readonly pseudonyms?: PseudonymReader | undefined;
}

export interface SearchedSegment {
  /** Name of its folder. */
  readonly replica: string;
  readonly segment: Segment;
  /** True if a gateway may be writing to it. */
  readonly isGrowing: boolean;
  /** True if it may have records in the time range that is searched. */
  readonly isOverlapping: boolean;
  /** No record in it is newer. */
  readonly to: string;
}

/** The segments of one process's log in their order. `isDated`: when each of them ends is of use. */
export async function* searchedSegments(
  { directory, keys }: Pick<ReadOptions, 'directory' | 'keys'>,
  replica: string,
  { since = '', until }: Pick<Query, 'since' | 'until'>,
  isDated = since !== '' || until !== undefined,
): AsyncGenerator<SearchedSegment, void> {
  const folder = join(directory, replica);
  const segments = await segmentsIn(folder);
  for (const [index, segment] of segments.entries()) {
    const next = segments[index + 1];
    const isGrowing = next === undefined;
    // If the segment cannot be read, reading it reports that.
    const range =
      isDated && next !== undefined
        ? await timeRangeOf(folder, segment, next, keys).catch(reportDefect)
        : undefined;
    const { from, to } = range ?? { from: '', to: LATEST };
    const isOverlapping = to !== '' && to >= since && (until === undefined || from < until);
    yield { replica, segment, isGrowing, isOverlapping, to };
  }
}

/** Whole lines under seals, possibly with the seals; valid until the next block is requested. */
export interface SealedBlock {
  readonly bytes: Buffer;
  /** Number of its last record. */
  readonly last: number;
  /** True if the segment may have records in the time range that is searched. */
  readonly isOverlapping: boolean;
}

/**
 * The blocks of one process's log: of the segments in the time range, and of others as long as `isIncomplete` says that
 * something in them is missing.
 */
export async function* blocksOf(
  options: ReadOptions & { readonly query: Query },
  replica: string,
  isIncomplete = (): boolean => false,
): AsyncGenerator<SealedBlock, void> {
  for await (const each of searchedSegments(options, replica, options.query)) {
    if (!each.isOverlapping && !isIncomplete()) {
      options.onSkipped?.(join(options.directory, replica, each.segment.name));
      continue;
    }
    for await (const block of sealedBlocks(options, each)) {
      yield block;
      if (!each.isOverlapping && !isIncomplete()) break;
    }
  }
}

/** The lines of a segment that seals cover; reports what cannot be read or trusted of it. */
export async function* sealedBlocks(
  options: ReadOptions,
  searched: SearchedSegment,
): AsyncGenerator<SealedBlock, void> {
  const reading = new SegmentReading(options, searched);
  try {
    for (let block = await reading.next(); block !== undefined; block = await reading.next()) {
      options.onBytes(block.length, reading.stored);
      yield* reading.sealedIn(block);
    }
  } finally {
    await reading.close();
  }
}

class SegmentReading {
  readonly #options: ReadOptions;
  readonly #searched: SearchedSegment;
  readonly #walk: ChainWalk;
  #reader: SegmentReader | undefined;
  #isUnchecked = false;
  /** Records that no seal covers as they are. */
  #altered = 0;

  constructor(options: ReadOptions, searched: SearchedSegment) {
    const { replica, segment } = searched;
    const { keys } = options;
    this.#options = options;
    this.#searched = searched;
    this.#walk = new ChainWalk({ keys, replica, first: segment.first, mostErrors: Number.POSITIVE_INFINITY });
  }

  /** Bytes of the file, compressed or not, that were read since the last call. */
  get stored(): number {
    return this.#reader?.stored() ?? 0;
  }

  async next(): Promise<Buffer | undefined> {
    const { directory } = this.#options;
    const { replica, segment } = this.#searched;
    if (this.#walk.isOver) {
      this.#report(finding('errors-omitted'));
      return undefined;
    }
    try {
      this.#reader ??= await SegmentReader.open(join(directory, replica, segment.name), 'seal');
      const block = await this.#reader.next();
      if (block !== undefined) return block;
      const { length: bytes } = this.#reader.rest;
      if (bytes > 0) this.#report(finding('bytes-unsealed', { bytes }), this.#searched.isGrowing);
    } catch (error) {
      reportDefect(error);
      this.#report(finding('segment-unreadable', { reason: messageOf(error) }));
    }
    return undefined;
  }

  /** The batches of a block that are as their seals say; all of them together, if all are. */
  *sealedIn(block: Buffer): Generator<SealedBlock, void> {
    const { isOverlapping } = this.#searched;
    const batches = this.#walk.walk(block);
    const sealed = batches.filter(({ trust }) => trust !== 'refused');
    for (const { trust, header, lines } of batches) {
      if (trust === 'unchecked') this.#noteUnchecked(header?.key ?? '');
      if (trust === 'refused') this.#altered += countRecords(lines);
    }
    const isWhole = sealed.length === batches.length;
    for (const { lines, seal } of isWhole ? sealed.slice(-1) : sealed) {
      yield { bytes: isWhole ? block : lines, last: seal?.last ?? 0, isOverlapping };
    }
  }

  async close(): Promise<void> {
    await this.#reader?.close();
    if (this.#altered > 0) this.#report(finding('records-altered', { records: this.#altered }));
  }

  #noteUnchecked(key: string): void {
    if (!this.#isUnchecked) this.#report(finding('segment-unchecked', { key }));
    this.#isUnchecked = true;
  }

  #report(found: Finding, isNote = false): void {
    const { onNote, onUnreadable } = this.#options;
    const { replica, segment } = this.#searched;
    (isNote ? onNote : onUnreadable)({ ...found, replica, segment: segment.name, line: 0 });
  }
}

function countRecords(lines: Buffer): number {
  return [...linesOf(lines)].filter(([start, end]) => lineType(lines, start, end) === 'record').length;
}
