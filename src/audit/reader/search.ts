import { join } from 'node:path';
import { reportDefect } from '../../base/expected-errors.ts';
import { headOf, linesOf } from '../line.ts';
import { foldersIn, segmentsIn } from '../segments/segment.ts';
import { type TimeRange, timeRangeOf } from '../segments/time-index.ts';
import { NO_PSEUDONYMS, type PseudonymReader } from './pseudonym-reader.ts';
import { type Found, isWithin, type Query, timeOf } from './query.ts';
import {
  type ReadOptions,
  reportUnsealed,
  type SealedBlock,
  type SearchedSegment,
  sealedBlocks,
} from './sealed-blocks.ts';
import { SearchJoin } from './search-join.ts';

export interface SearchOptions extends ReadOptions {
  readonly query: Query;
  /** Called for each block that was read: its bytes, uncompressed, and how many bytes of the file it took. */
  readonly onBytes: (count: number, stored: number) => void;
  /** Called for a file of the log that is not read, since it has no records in the time range. */
  readonly onSkipped?: (file: string) => void;
  /** Called for a record whose parameters were too long to be recorded whole and may have held the identifier. */
  readonly onCut: () => void;
}

/**
 * Returns the matching records under a seal from the logs of all processes, in order of time. Memory use does not depend
 * on the size of the log.
 * @throws Error if a directory cannot be read
 */
export async function* search(options: SearchOptions): AsyncGenerator<Found, void> {
  const folders = await foldersIn(options.directory, options.query.replica);
  const found = folders.map((name) => searchLog(options, name));
  yield* inOrderOfTime(found, timeOf);
}

/** A line of the log without its line end: as it is there, with the values of pseudonyms whose keys are known. */
interface RawRecord {
  readonly time: string;
  readonly line: string;
}

/**
 * The records of the replica and in the time range of the query that are under a seal, in order of time; its other
 * criteria do not count.
 * @throws Error if a directory cannot be read
 */
export async function* allRecords(options: Omit<SearchOptions, 'onCut'>): AsyncGenerator<RawRecord, void> {
  const folders = await foldersIn(options.directory, options.query.replica);
  const records = folders.map((name) => recordsOf(options, name));
  yield* inOrderOfTime(records, ({ time }) => time);
}

async function* searchLog(options: SearchOptions, replica: string): AsyncGenerator<Found, void> {
  const { query, onBytes, onSkipped, onUnreadable, onCut } = options;
  const folder = join(options.directory, replica);
  const joined = new SearchJoin({ query, replica, onCut, onUnreadable, pseudonyms: options.pseudonyms });
  for await (const each of segmentsFor(folder, options)) {
    const { overlapping } = each;
    // The outcome of a request may be in a segment outside of the time range.
    if (!overlapping && joined.complete) {
      onSkipped?.(join(folder, each.segment.name));
      continue;
    }
    for await (const block of sealedBlocks(options, replica, each)) {
      if (!overlapping && joined.complete) break;
      onBytes(block.bytes.length, block.stored);
      yield* joined.take(block);
    }
    reportUnsealed(options, replica, each, joined.takeUnsealed());
  }
  yield* joined.rest();
}

async function* recordsOf(
  options: Omit<SearchOptions, 'onCut'>,
  replica: string,
): AsyncGenerator<RawRecord, void> {
  const { query, onBytes, onSkipped } = options;
  const folder = join(options.directory, replica);
  for await (const each of segmentsFor(folder, options)) {
    if (!each.overlapping) {
      onSkipped?.(join(folder, each.segment.name));
      continue;
    }
    const counts = { unsealed: 0 };
    for await (const block of sealedBlocks(options, replica, each)) {
      onBytes(block.bytes.length, block.stored);
      yield* recordsWithin(query, block, counts, options.pseudonyms ?? NO_PSEUDONYMS);
    }
    reportUnsealed(options, replica, each, counts.unsealed);
  }
}

function* recordsWithin(
  query: Query,
  { bytes, covers }: SealedBlock,
  counts: { unsealed: number },
  pseudonyms: PseudonymReader,
): Generator<RawRecord, void> {
  for (const [start, end] of linesOf(bytes)) {
    const head = headOf(bytes, start);
    if (head === undefined || !isWithin(query, head)) continue;
    if (covers(start)) yield { time: head.time, line: pseudonyms.reveal(bytes.toString('utf8', start, end)) };
    else counts.unsealed += 1;
  }
}

/** A segment in the order of its folder. */
interface OrderedSegment extends SearchedSegment {
  /** True if it may have records in the time range of the query. */
  readonly overlapping: boolean;
}

export async function* segmentsFor(
  folder: string,
  { query, keys }: Pick<SearchOptions, 'query' | 'keys'>,
): AsyncGenerator<OrderedSegment, void> {
  const segments = await segmentsIn(folder);
  const anyTime = query.since === undefined && query.until === undefined;
  for (const segment of segments) {
    const growing = segment === segments.at(-1);
    // If the segment cannot be read, reading it below reports that.
    const range =
      anyTime || growing ? undefined : await timeRangeOf(folder, segment, keys[0]).catch(reportDefect);
    yield { segment, overlapping: range === undefined || overlaps(query, range), growing };
  }
}

/** Merges sources that are each in order of time. Reads one item of each source ahead. */
async function* inOrderOfTime<T>(
  sources: readonly AsyncGenerator<T, void>[],
  timeOf: (item: T) => string,
): AsyncGenerator<T, void> {
  try {
    const heads = await Promise.all(sources.map(async (source) => ({ source, next: await source.next() })));
    for (;;) {
      let first: (typeof heads)[number] | undefined;
      let earliest = '';
      for (const head of heads) {
        if (head.next.done === true) continue;
        const time = timeOf(head.next.value);
        if (first !== undefined && time >= earliest) continue;
        first = head;
        earliest = time;
      }
      if (first === undefined || first.next.done === true) return;
      yield first.next.value;
      first.next = await first.source.next();
    }
  } finally {
    // If the consumer stops early, the sources still have open files.
    for (const source of sources) await source.return();
  }
}

/** True if a segment with that range may have records in the time range of the query. */
export function overlaps({ since, until }: Query, { from, to }: TimeRange): boolean {
  return to !== '' && (since === undefined || to >= since) && (until === undefined || from < until);
}
