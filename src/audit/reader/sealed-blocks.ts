import { join } from 'node:path';
import { messageOf } from '../../base/error-code.ts';
import { reportDefect } from '../../base/expected-errors.ts';
import { type Finding, finding, type PlacedFinding } from '../findings.ts';
import type { AuditKeys } from '../keys.ts';
import { NEWLINE } from '../line.ts';
import { checkSeal, parseSeal } from '../seal.ts';
import { parseHeader, type Segment, segmentsIn } from '../segments/segment.ts';
import { lastSeal, nextSeal, SegmentReader } from '../segments/segment-reader.ts';
import { timeRangeOf } from '../segments/time-index.ts';
import type { PseudonymReader } from './pseudonym-reader.ts';
import type { Query } from './query.ts';

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

/** Later than the time of every record. */
export const LATEST = '9999-12-31T23:59:59.999Z';

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
  for (const segment of segments) {
    const isGrowing = segment === segments.at(-1);
    // If the segment cannot be read, reading it reports that.
    const range =
      isDated && !isGrowing ? await timeRangeOf(folder, segment, keys[0]).catch(reportDefect) : undefined;
    const { from, to } = range ?? { from: '', to: LATEST };
    const isOverlapping = to !== '' && to >= since && (until === undefined || from < until);
    yield { replica, segment, isGrowing, isOverlapping, to };
  }
}

/** Whole batches of a segment, each with its seal; valid until the next block is requested. */
export interface SealedBlock {
  readonly bytes: Buffer;
  /** Number of its last record. */
  readonly last: number;
  /** True if the segment may have records in the time range that is searched. */
  readonly isOverlapping: boolean;
  /** True if a seal of the key covers the line at that index as it is. The batch is checked only if this is called. */
  readonly covers: (at: number) => boolean;
  /** As `covers`, for a record that is looked for: one that no seal covers is reported as left out. */
  readonly admits: (at: number) => boolean;
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

/** The batches of a segment; reports what cannot be read or trusted of it. */
export async function* sealedBlocks(
  options: ReadOptions,
  searched: SearchedSegment,
): AsyncGenerator<SealedBlock, void> {
  const blocks = new SegmentBlocks(options, searched);
  try {
    for (let block = await blocks.next(); block !== undefined; block = await blocks.next()) {
      options.onBytes(block.bytes.length, blocks.stored);
      yield block;
    }
  } finally {
    await blocks.close();
  }
}

/**
 * Reads one segment in blocks of whole batches. A search reads gigabytes and prints some lines, so only the batches of
 * these lines are checked.
 */
class SegmentBlocks {
  readonly #options: ReadOptions;
  readonly #searched: SearchedSegment;
  #reader: SegmentReader | undefined;
  #key: AuditKeys | 'unknown' | undefined;
  /** `hmac` of the last seal before the block. */
  #previous = '';
  #hasBegun = false;
  /** Records that were looked for, and that no seal covers. */
  #unsealed = 0;

  constructor(options: ReadOptions, searched: SearchedSegment) {
    this.#options = options;
    this.#searched = searched;
  }

  /** Bytes of the file, compressed or not, that were read since the last call. */
  get stored(): number {
    return this.#reader?.stored() ?? 0;
  }

  async next(): Promise<SealedBlock | undefined> {
    const { directory } = this.#options;
    const { replica, segment } = this.#searched;
    try {
      this.#reader ??= await SegmentReader.open(join(directory, replica, segment.name), { until: 'seal' });
      const block = await this.#reader.next();
      if (block !== undefined) return this.#begin(block);
      const { length: bytes } = this.#reader.rest;
      if (bytes > 0) this.#report(finding('bytes-unsealed', { bytes }), this.#searched.isGrowing);
    } catch (error) {
      reportDefect(error);
      this.#report(finding('segment-unreadable', { reason: messageOf(error) }));
    }
    return undefined;
  }

  async close(): Promise<void> {
    await this.#reader?.close();
    if (this.#unsealed > 0) this.#report(finding('records-altered', { records: this.#unsealed }));
  }

  #report(found: Finding, isNote = false): void {
    const { onNote, onUnreadable } = this.#options;
    const { replica, segment } = this.#searched;
    (isNote ? onNote : onUnreadable)({ ...found, replica, segment: segment.name, line: 0 });
  }

  #begin(bytes: Buffer): SealedBlock {
    if (!this.#hasBegun) this.#readHeader(bytes.toString('utf8', 0, bytes.indexOf(NEWLINE)));
    const previous = this.#previous;
    const seal = parseSeal(bytes.toString('latin1', lastSeal(bytes, bytes.length), bytes.length - 1));
    this.#previous = seal?.hmac ?? '';
    let [from, to, good] = [0, 0, false];
    const covers = (at: number): boolean => {
      if (at >= from && at < to) return good;
      [from, to, good] = this.#checkAt(bytes, at, previous);
      return good;
    };
    const admits = (at: number): boolean => {
      if (covers(at)) return true;
      this.#unsealed += 1;
      return false;
    };
    return { bytes, last: seal?.last ?? 0, isOverlapping: this.#searched.isOverlapping, covers, admits };
  }

  #readHeader(line: string): void {
    this.#hasBegun = true;
    const header = parseHeader(line);
    if (header?.replica !== this.#searched.replica) return;
    this.#previous = header.previous;
    this.#key = this.#options.keys.find(({ id }) => id === header.key) ?? 'unknown';
    if (this.#key === 'unknown') this.#report(finding('segment-unchecked', { key: header.key }));
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
    const chain = { replica: this.#searched.replica, previous };
    const { fits, authentic } = checkSeal([this.#key], chain, seal, bytes.subarray(from, start));
    return [from, end, fits && authentic];
  }
}
