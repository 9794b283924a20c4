import { join } from 'node:path';
import { messageOf } from '../../base/error-code.ts';
import { reportDefect } from '../../base/expected-errors.ts';
import { type Finding, finding, type PlacedFinding } from '../findings.ts';
import type { AuditKeys } from '../keys.ts';
import { headOf, linesOf, NEWLINE } from '../line.ts';
import { checkSeal, parseSeal } from '../seal.ts';
import { foldersIn, parseHeader, type Segment, segmentsIn } from '../segments/segment.ts';
import { lastSeal, nextSeal, SegmentReader } from '../segments/segment-reader.ts';
import { type TimeRange, timeRangeOf } from '../segments/time-index.ts';
import { type Found, isWithin, type Query, timeOf } from './query.ts';
import { SearchJoin } from './search-join.ts';

export interface ReadOptions {
  readonly directory: string;
  /** The current key first, then those that sealed earlier segments. */
  readonly keys: readonly [AuditKeys, ...AuditKeys[]];
  /** Called for a part of the log that cannot be read or trusted; the search goes on with the rest. */
  readonly onUnreadable: (finding: PlacedFinding) => void;
  /** Called for lines that are left out without being an error: the end of a log that is being written. */
  readonly onNote: (finding: PlacedFinding) => void;
}

export interface SearchedSegment {
  readonly segment: Segment;
  /** True if a gateway may be writing to it. */
  readonly growing: boolean;
}

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

/** A line of the log as it is there, without its line end. */
export interface RawRecord {
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
  const joined = new SearchJoin({ query, replica, onCut, onUnreadable });
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
      yield* recordsWithin(query, block, counts);
    }
    reportUnsealed(options, replica, each, counts.unsealed);
  }
}

function* recordsWithin(
  query: Query,
  { bytes, covers }: SealedBlock,
  counts: { unsealed: number },
): Generator<RawRecord, void> {
  for (const [start, end] of linesOf(bytes)) {
    const head = headOf(bytes, start);
    if (head === undefined || !isWithin(query, head)) continue;
    if (covers(start)) yield { time: head.time, line: bytes.toString('utf8', start, end) };
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

/** Tells how many records of the segment were left out because no seal covers them as they are. */
export function reportUnsealed(
  { onUnreadable }: Pick<ReadOptions, 'onUnreadable'>,
  replica: string,
  { segment }: SearchedSegment,
  records: number,
): void {
  if (records === 0) return;
  onUnreadable({ ...finding('records-altered', { records }), replica, segment: segment.name, line: 0 });
}

/** The batches of a segment; reports what cannot be read of it. */
export async function* sealedBlocks(
  { directory, keys, onUnreadable, onNote }: ReadOptions,
  replica: string,
  { segment, growing }: SearchedSegment,
): AsyncGenerator<SealedBlock, void> {
  const placed = (found: Finding): PlacedFinding => ({ ...found, replica, segment: segment.name, line: 0 });
  try {
    yield* readSealed({
      file: join(directory, replica, segment.name),
      replica,
      keys,
      onUnknownKey: (key) => onUnreadable(placed(finding('segment-unchecked', { key }))),
      onUnsealed: (bytes) => (growing ? onNote : onUnreadable)(placed(finding('bytes-unsealed', { bytes }))),
    });
  } catch (error) {
    onUnreadable(placed(finding('segment-unreadable', { reason: messageOf(error) })));
  }
}

/** True if a segment with that range may have records in the time range of the query. */
export function overlaps({ since, until }: Query, { from, to }: TimeRange): boolean {
  return to !== '' && (since === undefined || to >= since) && (until === undefined || from < until);
}

export interface BlocksOptions {
  readonly file: string;
  readonly replica: string;
  readonly keys: readonly AuditKeys[];
  /** Called if the segment is sealed with another key, of that id: its batches are not checked. */
  readonly onUnknownKey: (id: string) => void;
  /** Called with the number of bytes at the end that are under no seal; they are left out. */
  readonly onUnsealed: (bytes: number) => void;
}

/** Whole batches of a segment, each with its seal; valid until the next block is requested. */
export interface SealedBlock {
  readonly bytes: Buffer;
  /** Bytes of the file, compressed or not, that were read since the last block. */
  readonly stored: number;
  /** Number of its last record. */
  readonly last: number;
  /** True if a seal of the key covers the line at that index as it is. The batch is checked only if this is called. */
  readonly covers: (at: number) => boolean;
}

/**
 * Reads a segment in blocks of whole batches. A search reads gigabytes and prints some lines, so only the batches of
 * these lines are checked.
 * @throws Error if the file cannot be read or decompressed
 */
export async function* readSealed(options: BlocksOptions): AsyncGenerator<SealedBlock, void> {
  const check = new SealCheck(options);
  const reader = await SegmentReader.open(options.file, { until: 'seal' });
  try {
    for (let bytes = await reader.next(); bytes !== undefined; bytes = await reader.next()) {
      yield { ...check.next(bytes), stored: reader.stored() };
    }
    if (reader.rest.length > 0) options.onUnsealed(reader.rest.length);
  } finally {
    await reader.close();
  }
}

/** Checks single batches of one segment, whose blocks it gets in order. */
class SealCheck {
  readonly #options: BlocksOptions;
  #key: AuditKeys | 'unknown' | undefined;
  /** `hmac` of the last seal before the block. */
  #previous = '';
  #begun = false;

  constructor(options: BlocksOptions) {
    this.#options = options;
  }

  next(bytes: Buffer): Omit<SealedBlock, 'stored'> {
    if (!this.#begun) this.#begin(bytes.toString('utf8', 0, bytes.indexOf(NEWLINE)));
    const previous = this.#previous;
    const seal = parseSeal(bytes.toString('latin1', lastSeal(bytes, bytes.length), bytes.length - 1));
    this.#previous = seal?.hmac ?? '';
    let [from, to, good] = [0, 0, false];
    const covers = (at: number): boolean => {
      if (at >= from && at < to) return good;
      [from, to, good] = this.#checkAt(bytes, at, previous);
      return good;
    };
    return { bytes, last: seal?.last ?? 0, covers };
  }

  #begin(line: string): void {
    this.#begun = true;
    const header = parseHeader(line);
    if (header?.replica !== this.#options.replica) return;
    this.#previous = header.previous;
    this.#key = this.#options.keys.find(({ id }) => id === header.key) ?? 'unknown';
    if (this.#key === 'unknown') this.#options.onUnknownKey(header.key);
  }

  /** Where the batch of that line begins and ends, and whether its seal covers it. */
  #checkAt(bytes: Buffer, at: number, beforeBlock: string): [from: number, to: number, good: boolean] {
    const before = lastSeal(bytes, at);
    const from = before === -1 ? 0 : bytes.indexOf(NEWLINE, before) + 1;
    const start = nextSeal(bytes, at);
    const end = bytes.indexOf(NEWLINE, start);
    if (this.#key === 'unknown') return [from, end, true];
    const seal = parseSeal(bytes.toString('latin1', start, end));
    const previous =
      before === -1 ? beforeBlock : parseSeal(bytes.toString('latin1', before, from - 1))?.hmac;
    if (seal === undefined || previous === undefined || this.#key === undefined) return [from, end, false];
    const chain = { replica: this.#options.replica, previous };
    const { fits, authentic } = checkSeal([this.#key], chain, seal, bytes.subarray(from, start));
    return [from, end, fits && authentic];
  }
}
