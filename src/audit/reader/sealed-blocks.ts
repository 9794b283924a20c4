import { join } from 'node:path';
import { messageOf } from '../../base/error-code.ts';
import { reportDefect } from '../../base/expected-errors.ts';
import { type Finding, finding } from '../findings.ts';
import { linesOf, lineType } from '../line.ts';
import { ChainWalk, type WalkedBatch } from '../segments/chain-walk.ts';
import { headerOf, readBlocks } from '../segments/segment-reader.ts';
import { checkBeginning } from './log-beginning.ts';
import type { Query } from './query.ts';
import { type ReadOptions, type SearchedSegment, searchedSegments } from './searched-segments.ts';

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
  await checkBeginning(options, replica, options.query);
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

/**
 * The lines of a segment that seals cover; reports what cannot be read or trusted of it, and whether the next one
 * continues it.
 */
export async function* sealedBlocks(
  options: ReadOptions,
  { replica, segment, next }: Pick<SearchedSegment, 'replica' | 'segment' | 'next'>,
): AsyncGenerator<SealedBlock, void> {
  const { directory, keys, onUnreadable, onNote } = options;
  const walk = new ChainWalk({ keys, replica, first: segment.first, mostErrors: Number.POSITIVE_INFINITY });
  let isRead = true;
  const report = (found: Finding, name = segment.name): void => {
    const isEnd = found.kind === 'bytes-unsealed' && next === undefined;
    if (found.kind === 'segment-unreadable') isRead = false;
    (isEnd ? onNote : onUnreadable)({ ...found, replica, segment: name, line: 0 });
  };
  yield* walkedBlocks(options, join(directory, replica, segment.name), walk, report);
  if (next === undefined || !isRead || walk.isOver) return;
  if (walk.sealLineEnd === 0) return report(finding('segment-unsealed'));
  const gap = await gapBefore(join(directory, replica, next.name), walk);
  if (gap !== undefined) report(gap, next.name);
}

async function* walkedBlocks(
  { onBytes }: ReadOptions,
  file: string,
  walk: ChainWalk,
  report: (found: Finding) => void,
): AsyncGenerator<SealedBlock, void> {
  let isUnchecked = false;
  /** Records that no seal covers as they are. */
  let altered = 0;
  try {
    for await (const { bytes, stored } of wholeBlocks(file, report)) {
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

/** Why the next segment does not continue the one that was read; undefined: it does, or has to be read for that. */
async function gapBefore(file: string, { state }: ChainWalk): Promise<Finding | undefined> {
  const next = await headerOf(file).catch(reportDefect);
  if (next === undefined) return undefined;
  const { first, previous } = next;
  if (first !== state.nextSeq) return finding('segment-out-of-order', { first, expected: state.nextSeq });
  return previous === state.previous ? undefined : finding('chain-broken');
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
