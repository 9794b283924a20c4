import { join } from 'node:path';
import { messageOf } from '../../base/error-code.ts';
import { reportDefect } from '../../base/expected-errors.ts';
import { type Finding, finding, type PlacedFinding } from '../findings.ts';
import type { AuditKeys } from '../keys.ts';
import { linesOf, lineType } from '../line.ts';
import { parseAdmin, type RetiredEnd } from '../segments/admin-records.ts';
import { ChainWalk, type WalkedBatch, walkFile } from '../segments/chain-walk.ts';
import { type Segment, type SegmentHeader, segmentsIn } from '../segments/segment.ts';
import { headerOf, readBlocks } from '../segments/segment-reader.ts';
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
  /** The segment that continues it; undefined: a gateway may be writing to it. */
  readonly next: Segment | undefined;
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
    // If the segment cannot be read, reading it reports that.
    const range =
      isDated && next !== undefined
        ? await timeRangeOf(folder, segment, next, keys).catch(reportDefect)
        : undefined;
    const { from, to } = range ?? { from: '', to: LATEST };
    const isOverlapping = to !== '' && to >= since && (until === undefined || from < until);
    yield { replica, segment, next, isOverlapping, to };
  }
}

/**
 * Reports that the log of a process begins after record 1, if the time range reaches back to before that.
 * @throws Error if the folder cannot be read
 */
export async function checkBeginning(
  options: ReadOptions,
  replica: string,
  query: Pick<Query, 'since' | 'until'>,
): Promise<void> {
  const folder = join(options.directory, replica);
  const segments = await segmentsIn(folder);
  const [oldest] = segments;
  if (oldest === undefined || oldest.first === 1) return;
  // The search itself reports a segment that cannot be read; a running gateway may just have removed this one.
  const header = await headerOf(join(folder, oldest.name)).catch(reportDefect);
  if (header === undefined || header.opened <= (query.since ?? '')) return;
  const { first } = oldest;
  const { opened, previous: hmac } = header;
  const retirement = await retirementOf(options, replica, segments, { last: first - 1, hmac });
  if (retirement === undefined) {
    const missing = finding('segment-missing', { last: first - 1 });
    options.onUnreadable({ ...missing, replica, segment: oldest.name, line: 0 });
    return;
  }
  const { segment, key, isSealed } = retirement;
  // Anybody can have written that. A search in the segment reports the same itself.
  if (!isSealed && !(await isSearched(options, replica, segment, query))) {
    const unchecked = finding('segment-unchecked', { key });
    options.onUnreadable({ ...unchecked, replica, segment: segment.name, line: 0 });
  }
  options.onNote({ ...finding('records-retired', { first, opened }), replica, segment: '', line: 0 });
}

async function isSearched(
  options: ReadOptions,
  replica: string,
  { first }: Segment,
  query: Pick<Query, 'since' | 'until'>,
): Promise<boolean> {
  for await (const { segment, isOverlapping } of searchedSegments(options, replica, query)) {
    if (segment.first === first) return isOverlapping;
  }
  return false;
}

/** Where the log says that its oldest records were removed for their age. */
interface FoundRetirement {
  readonly segment: Segment;
  /** Id of the key that its header names. */
  readonly key: string;
  /** False: its key is not at hand. */
  readonly isSealed: boolean;
}

/**
 * Finds the header or record that says that the records up to `end`, before the oldest segment, were removed for their
 * age; undefined: there is none. One under a seal that was checked comes first.
 */
async function retirementOf(
  { directory, keys, onBytes }: ReadOptions,
  replica: string,
  segments: readonly Segment[],
  end: RetiredEnd,
): Promise<FoundRetirement | undefined> {
  let unchecked: FoundRetirement | undefined;
  let later: SegmentHeader | undefined;
  for (const segment of segments.toReversed()) {
    const file = join(directory, replica, segment.name);
    const header = await headerOf(file).catch(reportDefect);
    const mayTell = header !== undefined && mayHaveRetired(header, later, end);
    later = header;
    if (!mayTell) continue;
    const found: WalkedBatch['trust'][] = [];
    const walk = new ChainWalk({ keys, replica, first: segment.first });
    const find = (batch: WalkedBatch): boolean => {
      // When a segment is begun, the one before it is still there: its header cannot say that of itself.
      const ends = retiredIn(batch, segment !== segments[0]);
      if (ends.some(({ last, hmac }) => last === end.last && hmac === end.hmac)) found.push(batch.trust);
      return found.length > 0;
    };
    await walkFile(walk, file, find, (count) => onBytes(count, 0)).catch(reportDefect);
    const isSealed = found.includes('sealed');
    if (isSealed) return { segment, key: header.key, isSealed };
    if (found.length > 0) unchecked ??= { segment, key: header.key, isSealed };
  }
  return unchecked;
}

/**
 * True if the end can have been retired before the segment was closed, and was not before it was begun, unless its
 * header names just that end. A header names the last retirement before it; after a change of the key it may not.
 */
function mayHaveRetired(
  { key, retired }: SegmentHeader,
  later: SegmentHeader | undefined,
  { last }: RetiredEnd,
): boolean {
  if (retired !== undefined && retired.last > last) return false;
  return later?.key !== key || (later.retired !== undefined && later.retired.last >= last);
}

/** The ends of retired segments that a batch names, if it is as its seal says. */
function retiredIn(
  { trust, line, header, admin, uncheckedAdmin }: WalkedBatch,
  hasHeader: boolean,
): RetiredEnd[] {
  if (trust === 'refused') return [];
  const records = [...admin, ...uncheckedAdmin].map((each) => parseAdmin(each.line));
  const retired = records.filter((record) => record?.event === 'segment-retired');
  // The header is under the seal of the first batch only.
  return hasHeader && line === 1 && header?.retired !== undefined ? [header.retired, ...retired] : retired;
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
