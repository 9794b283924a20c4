import { hash } from 'node:crypto';
import type { AuditKeys } from '../keys.ts';
import { headOf, linesOf } from '../line.ts';
import { isAuthentic, LARGEST_BATCH, parseSeal, SEAL_START, type Seal } from '../seal.ts';
import { parseHeader, SEGMENT_START, type SegmentHeader } from '../segments/segment.ts';
import { LogCursor } from './log-cursor.ts';

const LEAST_BYTES = 64 * 1024;

/** A record as it stands in the log, without its line end. */
export interface NumberedLine {
  readonly seq: number;
  readonly time: string;
  readonly line: string;
}

/** Lines of one replica's log that a seal covers, as they stand there. */
export interface SealedBatch {
  /** None, if it is what a process wrote when it began. */
  readonly records: readonly NumberedLine[];
  /** The lines, each with its end, a header among them; without the seal. */
  readonly lines: string;
  readonly seal: Seal;
  /** `hmac` of the seal before. */
  readonly previous: string;
}

export interface BatchesOptions {
  readonly folder: string;
  readonly replica: string;
  readonly keys: readonly AuditKeys[];
  /** Told of a batch that is not as a seal of the key covers it, and left out: which records the seal names. */
  readonly onForged: (range: { readonly first: number; readonly last: number }) => void;
}

/**
 * Reads one replica's log batch by batch, as it grows. What has no seal yet is not given; what is sealed with a key that
 * is not given is not checked.
 */
export class SealedBatches {
  readonly #options: BatchesOptions;
  readonly #cursor: LogCursor;
  /** The lines since the seal before. */
  #held = Buffer.allocUnsafeSlow(LEAST_BYTES);
  #size = 0;
  #records: NumberedLine[] = [];
  #previous: string | undefined;
  #key: AuditKeys | 'unknown' | undefined;
  #ready: SealedBatch[] = [];

  /** Begins in the segment that holds record `seq`, with what comes first there; Infinity: in the newest one. */
  constructor(options: BatchesOptions, seq: number) {
    this.#options = options;
    this.#cursor = new LogCursor(options.folder, seq);
  }

  /**
   * Undefined: there is none yet.
   * @throws Error when a file cannot be read
   */
  async next(): Promise<SealedBatch | undefined> {
    while (this.#ready.length === 0) {
      const block = await this.#cursor.next();
      if (block === undefined) return undefined;
      this.#read(block);
      this.#ready.reverse();
    }
    return this.#ready.pop();
  }

  close(): Promise<void> {
    return this.#cursor.close();
  }

  #read(block: Buffer): void {
    for (const [start, end] of linesOf(block)) {
      const head = headOf(block, start);
      if (head !== undefined) {
        this.#records.push({ ...head, line: block.toString('utf8', start, end) });
        this.#hold(block, start, end + 1);
      } else if (block.toString('latin1', start, start + SEAL_START.length) === SEAL_START) {
        this.#readSeal(block.toString('latin1', start, end));
      } else {
        const line = block.toString('utf8', start, end);
        const header = line.startsWith(SEGMENT_START) ? parseHeader(line) : undefined;
        if (header !== undefined) this.#begin(header);
        this.#hold(block, start, end + 1);
      }
    }
  }

  /** What has no seal and is followed by a new segment was taken back, and comes again. */
  #begin({ replica, previous, key }: SegmentHeader): void {
    this.#clear();
    const { keys } = this.#options;
    const ours = replica === this.#options.replica;
    this.#previous = previous;
    this.#key = ours ? (keys.find(({ id }) => id === key) ?? 'unknown') : undefined;
  }

  #hold(block: Buffer, start: number, end: number): void {
    // Without its first lines no seal fits what follows.
    if (this.#size + end - start > LARGEST_BATCH) this.#clear();
    const needed = this.#size + end - start;
    if (needed > this.#held.length) {
      const larger = Buffer.allocUnsafeSlow(Math.max(needed, this.#held.length * 2));
      this.#held.copy(larger, 0, 0, this.#size);
      this.#held = larger;
    }
    this.#size += block.copy(this.#held, this.#size, start, end);
  }

  #readSeal(line: string): void {
    const seal = parseSeal(line);
    const lines = this.#held.subarray(0, this.#size);
    const records = this.#records;
    const previous = this.#previous;
    if (seal !== undefined && previous !== undefined && this.#isSealed(lines, seal, previous)) {
      this.#ready.push({ records, lines: lines.toString(), seal, previous });
    } else this.#options.onForged({ first: seal?.first ?? 0, last: seal?.last ?? 0 });
    this.#clear();
    if (seal !== undefined) this.#previous = seal.hmac;
  }

  #isSealed(lines: Buffer, seal: Seal, previous: string): boolean {
    if (hash('sha256', lines, 'base64url') !== seal.sha256 || this.#key === undefined) return false;
    const { replica } = this.#options;
    return this.#key === 'unknown' || isAuthentic(this.#key, { replica, previous }, seal);
  }

  #clear(): void {
    this.#size = 0;
    this.#records = [];
    if (this.#held.length > LEAST_BYTES * 16) this.#held = Buffer.allocUnsafeSlow(LEAST_BYTES);
  }
}
