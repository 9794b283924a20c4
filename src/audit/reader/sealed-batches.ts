import type { AuditKeys } from '../keys.ts';
import { headOf, type LineKind, linesOf } from '../line.ts';
import { LineBuffer } from '../line-buffer.ts';
import { isAuthentic, isSealOf, LARGEST_BATCH, parseSeal, SEAL_START, type Seal } from '../seal.ts';
import { parseHeader, SEGMENT_START, type SegmentHeader } from '../segments/segment.ts';
import { LogCursor } from './log-cursor.ts';

/** A record as it is in the log, without its line end. */
export interface NumberedLine {
  readonly seq: number;
  readonly time: string;
  readonly kind: LineKind;
  readonly line: string;
}

/** Lines of one replica's log under one seal. */
export interface SealedBatch {
  /** Empty under an opening seal. */
  readonly records: readonly NumberedLine[];
  /** The lines as they are in the log, possibly with a header, without the seal. */
  readonly lines: string;
  readonly seal: Seal;
  /** `hmac` of the previous seal. */
  readonly previous: string;
  /** The header of its segment. */
  readonly header: SegmentHeader;
}

export interface BatchesOptions {
  readonly folder: string;
  readonly replica: string;
  readonly keys: readonly AuditKeys[];
  /** Called with the records that a seal names if it is forged or does not fit its lines; the batch is left out. */
  readonly onForged: (range: { readonly first: number; readonly last: number }) => void;
}

/**
 * Reads one replica's log batch by batch, as it grows. Lines that have no seal yet are not returned. In a segment that
 * is sealed with a key other than `keys`, only the digests are checked.
 */
export class SealedBatches {
  readonly #options: BatchesOptions;
  readonly #cursor: LogCursor;
  /** The lines since the last seal. */
  readonly #held = new LineBuffer();
  #records: NumberedLine[] = [];
  #previous: string | undefined;
  #header: SegmentHeader | undefined;
  #key: AuditKeys | 'unknown' | undefined;
  #ready: SealedBatch[] = [];

  /** Starts at the beginning of the segment that holds record `seq`, or of the oldest one. */
  constructor(options: BatchesOptions, seq: number) {
    this.#options = options;
    this.#cursor = new LogCursor(options.folder, seq);
  }

  /**
   * The next batch; undefined: there is none yet.
   * @throws Error if a file cannot be read
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

  /** Lines without a seal before a new segment were taken back by the writer, and come again. */
  #begin(header: SegmentHeader): void {
    const { replica, previous, key } = header;
    this.#clear();
    this.#header = header;
    const { keys } = this.#options;
    const ours = replica === this.#options.replica;
    this.#previous = previous;
    this.#key = ours ? (keys.find(({ id }) => id === key) ?? 'unknown') : undefined;
  }

  #hold(block: Buffer, start: number, end: number): void {
    // If the first lines are dropped, no seal fits the rest.
    if (this.#held.size + end - start > LARGEST_BATCH) this.#clear();
    this.#held.copy(block, start, end);
  }

  #readSeal(line: string): void {
    const seal = parseSeal(line);
    const lines = this.#held.bytes;
    const records = this.#records;
    const [previous, header] = [this.#previous, this.#header];
    const known = seal !== undefined && previous !== undefined && header !== undefined;
    if (known && this.#isSealed(lines, seal, previous)) {
      this.#ready.push({ records, lines: lines.toString(), seal, previous, header });
    } else this.#options.onForged({ first: seal?.first ?? 0, last: seal?.last ?? 0 });
    this.#clear();
    if (seal !== undefined) this.#previous = seal.hmac;
  }

  #isSealed(lines: Buffer, seal: Seal, previous: string): boolean {
    if (!isSealOf(seal, lines) || this.#key === undefined) return false;
    const { replica } = this.#options;
    return this.#key === 'unknown' || isAuthentic(this.#key, { replica, previous }, seal);
  }

  #clear(): void {
    this.#held.clear();
    this.#records = [];
  }
}
