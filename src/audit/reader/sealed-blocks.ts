import { hash } from 'node:crypto';
import type { AuditKeys } from '../keys.ts';
import { NEWLINE } from '../line.ts';
import { isAuthentic, LARGEST_BATCH, parseSeal, SEAL_START } from '../seal.ts';
import { parseHeader } from '../segments/segment.ts';
import { readBlocks } from '../segments/segment-reader.ts';

const SEAL_LINE = Buffer.from(`\n${SEAL_START}`);
const LEAST_BYTES = 128 * 1024;

export interface BlockEvents {
  /** The segment is sealed with a key that is not given, of that id: what stands in it is not checked. */
  readonly onUnknownKey: (id: string) => void;
  /** So many bytes at its end are under no seal; they are not given. */
  readonly onUnsealed: (bytes: number) => void;
}

/** Whole batches of a segment, each with its seal; good until the next is asked for. */
export interface SealedBlock {
  readonly bytes: Buffer;
  /** Whether a seal of the key covers the line that begins there, as it is. Asked for it only, a batch is checked. */
  readonly covers: (at: number) => boolean;
}

/**
 * Reads a segment batch by batch. A search looks at gigabytes and prints some lines: only the batches of those are
 * checked.
 * @throws Error when the file cannot be read or decompressed
 */
export async function* readSealed(
  file: string,
  replica: string,
  keys: readonly AuditKeys[],
  events: BlockEvents,
): AsyncGenerator<SealedBlock, void> {
  const check = new SealCheck(replica, keys, events.onUnknownKey);
  let held = Buffer.allocUnsafeSlow(LEAST_BYTES);
  let size = 0;
  for await (const { bytes, whole } of readBlocks(file)) {
    if (!whole || size + bytes.length > LARGEST_BATCH + LEAST_BYTES * 16) {
      events.onUnsealed(size + bytes.length);
      return;
    }
    held = withRoom(held, size, bytes.length);
    bytes.copy(held, size);
    const lines = held.subarray(size, size + bytes.length);
    const seal = lastSeal(lines, lines.length);
    const end = seal === -1 ? 0 : size + lines.indexOf(NEWLINE, seal) + 1;
    size += bytes.length;
    if (end === 0) continue;
    yield check.next(held.subarray(0, end));
    held.copyWithin(0, end, size);
    size -= end;
  }
  if (size > 0) events.onUnsealed(size);
}

/** Where the last line before `end` that is a seal begins; -1: there is none. */
function lastSeal(lines: Buffer, end: number): number {
  // A negative offset would count from the end.
  const before = end === 0 ? -1 : lines.lastIndexOf(SEAL_LINE, end - 1);
  if (before !== -1) return before + 1;
  return end > 0 && lines.toString('latin1', 0, SEAL_START.length) === SEAL_START ? 0 : -1;
}

function withRoom(held: Buffer<ArrayBuffer>, size: number, more: number): Buffer<ArrayBuffer> {
  if (size + more <= held.length) return held;
  const larger = Buffer.allocUnsafeSlow(Math.max(size + more, held.length * 2));
  held.copy(larger, 0, 0, size);
  return larger;
}

/** Checks single batches of one segment's blocks, which come in their order. */
class SealCheck {
  readonly #replica: string;
  readonly #keys: readonly AuditKeys[];
  readonly #onUnknownKey: (id: string) => void;
  #key: AuditKeys | 'unknown' | undefined;
  /** `hmac` of the seal before the block. */
  #previous = '';
  #begun = false;

  constructor(replica: string, keys: readonly AuditKeys[], onUnknownKey: (id: string) => void) {
    this.#replica = replica;
    this.#keys = keys;
    this.#onUnknownKey = onUnknownKey;
  }

  next(bytes: Buffer): SealedBlock {
    if (!this.#begun) this.#begin(bytes.toString('utf8', 0, bytes.indexOf(NEWLINE)));
    const previous = this.#previous;
    const last = lastSeal(bytes, bytes.length);
    this.#previous = parseSeal(bytes.toString('latin1', last, bytes.length - 1))?.hmac ?? '';
    let [from, to, good] = [0, 0, false];
    const covers = (at: number): boolean => {
      if (at >= from && at < to) return good;
      [from, to, good] = this.#checkAt(bytes, at, previous);
      return good;
    };
    return { bytes, covers };
  }

  #begin(line: string): void {
    this.#begun = true;
    const header = parseHeader(line);
    if (header?.replica !== this.#replica) return;
    this.#previous = header.previous;
    this.#key = this.#keys.find(({ id }) => id === header.key) ?? 'unknown';
    if (this.#key === 'unknown') this.#onUnknownKey(header.key);
  }

  /** Where the batch of that line begins and ends, and whether it is as it was sealed. */
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
    const asSealed = hash('sha256', bytes.subarray(from, start), 'base64url') === seal.sha256;
    return [from, end, asSealed && isAuthentic(this.#key, { replica: this.#replica, previous }, seal)];
  }
}
