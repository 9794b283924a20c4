import { join } from 'node:path';
import { messageOf } from '../../base/error-code.ts';
import { type Finding, finding, type PlacedFinding } from '../findings.ts';
import type { AuditKeys } from '../keys.ts';
import { NEWLINE } from '../line.ts';
import { checkSeal, parseSeal } from '../seal.ts';
import { parseHeader, type Segment } from '../segments/segment.ts';
import { lastSeal, nextSeal, SegmentReader } from '../segments/segment-reader.ts';
import type { PseudonymReader } from './pseudonym-reader.ts';

export interface ReadOptions {
  readonly directory: string;
  /** The current key first, then those that sealed earlier segments. */
  readonly keys: readonly [AuditKeys, ...AuditKeys[]];
  /** Called for a part of the log that cannot be read or trusted; the search goes on with the rest. */
  readonly onUnreadable: (finding: PlacedFinding) => void;
  /** Called for lines that are left out without being an error: the end of a log that is being written. */
  readonly onNote: (finding: PlacedFinding) => void;
  /** Reveals values that are recorded as pseudonyms; left out: they stay as they are. */
  readonly pseudonyms?: PseudonymReader | undefined;
}

export interface SearchedSegment {
  readonly segment: Segment;
  /** True if a gateway may be writing to it. */
  readonly growing: boolean;
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

interface BlocksOptions {
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
