import type { AuditKeys } from '../keys.ts';
import { NEWLINE } from '../line.ts';
import { LineBuffer } from '../line-buffer.ts';
import { isAuthentic, isSealOf, LARGEST_BATCH, parseSeal, SEAL_START } from '../seal.ts';
import { parseHeader } from '../segments/segment.ts';
import { readBlocks } from '../segments/segment-reader.ts';

const SEAL_LINE = Buffer.from(`\n${SEAL_START}`);
/** Bytes after the last seal that are kept at most: a batch, and the last block that was read. */
const MOST_HELD = LARGEST_BATCH + 2 * 1024 * 1024;

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
  const held = new LineBuffer();
  let read = 0;
  for await (const { bytes, whole, stored } of readBlocks(options.file)) {
    read += stored;
    if (!whole || held.size + bytes.length > MOST_HELD) {
      options.onUnsealed(held.size + bytes.length);
      return;
    }
    const seal = lastSeal(bytes, bytes.length);
    const end = seal === -1 ? 0 : held.size + bytes.indexOf(NEWLINE, seal) + 1;
    held.copy(bytes);
    if (end === 0) continue;
    yield { ...check.next(held.bytes.subarray(0, end)), stored: read };
    read = 0;
    held.drop(end);
  }
  if (held.size > 0) options.onUnsealed(held.size);
}

/** The index of the last seal before `end`; -1: there is none. */
function lastSeal(lines: Buffer, end: number): number {
  // A negative offset would count from the end.
  const before = end === 0 ? -1 : lines.lastIndexOf(SEAL_LINE, end - 1);
  if (before !== -1) return before + 1;
  return end > 0 && lines.toString('latin1', 0, SEAL_START.length) === SEAL_START ? 0 : -1;
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
    const start = bytes.indexOf(SEAL_LINE, at) + 1;
    const end = bytes.indexOf(NEWLINE, start);
    if (this.#key === 'unknown') return [from, end, true];
    const seal = parseSeal(bytes.toString('latin1', start, end));
    const previous =
      before === -1 ? beforeBlock : parseSeal(bytes.toString('latin1', before, from - 1))?.hmac;
    if (seal === undefined || previous === undefined || this.#key === undefined) return [from, end, false];
    const asSealed = isSealOf(seal, bytes.subarray(from, start));
    return [
      from,
      end,
      asSealed && isAuthentic(this.#key, { replica: this.#options.replica, previous }, seal),
    ];
  }
}
