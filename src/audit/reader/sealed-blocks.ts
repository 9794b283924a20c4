import { join } from 'node:path';
import { messageOf } from '../../base/error-code.ts';
import { reportDefect } from '../../base/expected-errors.ts';
import { type Finding, finding, type PlacedFinding } from '../findings.ts';
import type { AuditKeys } from '../keys.ts';
import { linesOf, lineType } from '../line.ts';
import { ChainWalk, type WalkedBatch } from '../segments/chain-walk.ts';
import { type Segment, segmentsIn } from '../segments/segment.ts';
import { readBlocks } from '../segments/segment-reader.ts';
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
  { replica, segment, isGrowing }: SearchedSegment,
): AsyncGenerator<SealedBlock, void> {
  const { directory, keys, onBytes, onUnreadable, onNote } = options;
  const report = (found: Finding): void => {
    const isNote = found.kind === 'bytes-unsealed' && isGrowing;
    (isNote ? onNote : onUnreadable)({ ...found, replica, segment: segment.name, line: 0 });
  };
  const walk = new ChainWalk({ keys, replica, first: segment.first, mostErrors: Number.POSITIVE_INFINITY });
  let isUnchecked = false;
  /** Records that no seal covers as they are. */
  let altered = 0;
  try {
    for await (const { bytes, stored } of wholeBlocks(join(directory, replica, segment.name), report)) {
      onBytes(bytes.length, stored);
      const batches = walk.walk(bytes);
      for (const { trust, lines } of batches) if (trust === 'refused') altered += countRecords(lines);
      const unchecked = batches.find(({ trust }) => trust === 'unchecked');
      if (unchecked !== undefined && !isUnchecked) {
        report(finding('segment-unchecked', { key: unchecked.header?.key ?? '' }));
        isUnchecked = true;
      }
      yield* asSealed(batches, bytes);
      if (walk.isOver) return report(finding('errors-omitted'));
    }
  } finally {
    if (altered > 0) report(finding('records-altered', { records: altered }));
  }
}

/** The blocks of a segment that end with a seal; reports what cannot be read, and what follows the last seal. */
async function* wholeBlocks(path: string, report: (found: Finding) => void): ReturnType<typeof readBlocks> {
  try {
    for await (const block of readBlocks(path, 'seal')) {
      const { length: bytes } = block.bytes;
      if (block.whole) yield block;
      else if (bytes > 0) report(finding('bytes-unsealed', { bytes }));
    }
  } catch (error) {
    reportDefect(error);
    report(finding('segment-unreadable', { reason: messageOf(error) }));
  }
}

/** The batches of a block that are as their seals say; all of them together, if all are. */
function asSealed(batches: readonly WalkedBatch[], block: Buffer): SealedBlock[] {
  const sealed = batches.filter(({ trust }) => trust !== 'refused');
  const isWhole = sealed.length === batches.length;
  return (isWhole ? sealed.slice(-1) : sealed).map(({ lines, seal }) => ({
    bytes: isWhole ? block : lines,
    last: seal?.last ?? 0,
  }));
}

function countRecords(lines: Buffer): number {
  return [...linesOf(lines)].filter(([start, end]) => lineType(lines, start, end) === 'record').length;
}
