import { createHash, type Hash, hash } from 'node:crypto';
import { type Finding, finding } from '../findings.ts';
import type { AuditKeys } from '../keys.ts';
import { isAdmin, lineType, NEWLINE, seqEnd, seqOf } from '../line.ts';
import { GENESIS, isAuthentic, LARGEST_BATCH, parseSeal, type Seal } from '../seal.ts';
import { isStop } from './admin-records.ts';
import { parseHeader, type SegmentHeader } from './segment.ts';
import { readBlocks } from './segment-reader.ts';

/** Integrity errors of one segment that are reported. */
const MOST_ERRORS = 20;

/** A place in a segment that cannot be as the gateway wrote it. */
export interface IntegrityError extends Finding {
  /** In the segment, from 1. */
  readonly line: number;
}

export interface WalkOptions {
  readonly keys: readonly AuditKeys[];
  readonly replica: string;
  /** Number of the first record of the segment, as its name has it. */
  readonly first: number;
  /** Where the chain stood at the end of the previous segment; undefined: the header is believed. */
  readonly before?: ChainState | undefined;
  readonly onError?: (error: IntegrityError) => void;
  /** Called for a seal that a key made, on lines that are as they were sealed. */
  readonly onSeal?: (seal: Seal) => void;
  /** Called for a whole admin line under such a seal, with its number in the segment; before `onSeal`. */
  readonly onAdmin?: (line: string, at: number) => void;
}

/** Where a chain stands between two segments. */
export interface ChainState {
  readonly previous: string;
  readonly nextSeq: number;
}

/** The end of the last seal that a key made. */
interface SealedEnd extends ChainState {
  readonly bytes: number;
  readonly lines: number;
}

/**
 * Follows the chain through one segment, line by line. After an integrity error the walk goes on with what the segment
 * itself says, so one changed byte is one error. Only lines under a seal that a key made are passed to `onAdmin` and
 * `onSeal`, and counted.
 */
export class ChainWalk {
  readonly #options: WalkOptions;
  #sealing: AuditKeys | undefined;
  #header: SegmentHeader | undefined;
  #previous: string;
  #nextSeq: number;
  #line = 0;
  /** Hash of the lines since the last seal that were in earlier blocks. */
  #hash: Hash | undefined;
  #batchLine = 1;
  #batchFirst: number | undefined;
  #batchRecords = 0;
  #batchAdmin: { readonly line: string; readonly at: number }[] = [];
  #lastRecord: string | undefined;
  #offset = 0;
  #sealLineEnd = 0;
  #sealed: SealedEnd | undefined;
  #stopped = false;
  #errors = 0;
  #over = false;
  records = 0;
  seals = 0;

  constructor(options: WalkOptions) {
    this.#options = options;
    this.#previous = options.before?.previous ?? GENESIS;
    this.#nextSeq = options.before?.nextSeq ?? 1;
  }

  /** The header as it is in the segment; to be trusted only if there is a `sealed` end. */
  get header(): SegmentHeader | undefined {
    return this.#header;
  }

  /** True if the header is of this replica and names one of the keys. */
  get keyKnown(): boolean {
    return this.#sealing !== undefined;
  }

  /** The state from which the next segment has to continue, as the segment itself says. */
  get state(): ChainState {
    return { previous: this.#previous, nextSeq: this.#nextSeq };
  }

  /** The end of the last seal that a key made; undefined: there is none. */
  get sealed(): SealedEnd | undefined {
    return this.#sealed;
  }

  /** Bytes up to the end of the last seal, authentic or not. */
  get sealLineEnd(): number {
    return this.#sealLineEnd;
  }

  /** Records after the last seal. */
  get unsealed(): number {
    return this.#batchRecords;
  }

  /** The line after the last seal. */
  get unsealedLine(): number {
    return this.#batchLine;
  }

  /** True if the last record under the last seal says that the process stopped. */
  get stopped(): boolean {
    return this.#stopped;
  }

  get lines(): number {
    return this.#line;
  }

  /** Takes the next whole lines. False: no gateway wrote what follows, so it need not be read. */
  walk(block: Buffer): boolean {
    if (this.#over) return false;
    let batchStart = 0;
    for (let start = 0; start < block.length && !this.#over; ) {
      const end = block.indexOf(NEWLINE, start);
      this.#line += 1;
      const type = lineType(block, start, end);
      if (this.#line === 1) this.#readHeader(block.toString('utf8', start, end));
      else if (type === 'record') this.#readRecord(block, start, end);
      else if (type === 'seal') {
        const line = block.toString('latin1', start, end);
        this.#readSeal(line, block.subarray(batchStart, start), this.#offset + end + 1);
        batchStart = end + 1;
      } else this.#report(finding('line-invalid'));
      start = end + 1;
    }
    if (batchStart < block.length) {
      this.#hash ??= createHash('sha256');
      this.#hash.update(block.subarray(batchStart));
    }
    this.#offset += block.length;
    if (!this.#over && this.#offset - this.#sealLineEnd > LARGEST_BATCH) this.#tooLarge();
    return !this.#over;
  }

  #tooLarge(): void {
    this.#report(finding('batch-too-large'), this.#batchLine);
    this.#over = true;
  }

  #report(found: Finding, line = this.#line): void {
    this.#errors += 1;
    this.#over ||= this.#errors > MOST_ERRORS;
    this.#options.onError?.({ ...(this.#over ? finding('errors-omitted') : found), line });
  }

  #readHeader(line: string): void {
    const header = parseHeader(line);
    this.#header = header;
    if (header === undefined) {
      this.#report(finding('header-invalid'));
      return;
    }
    const { previous, first, replica, key } = header;
    if (replica !== this.#options.replica) this.#report(finding('replica-mismatch', { replica }));
    else if (first !== this.#options.first) this.#report(finding('segment-renamed', { first }));
    else {
      this.#sealing = this.#options.keys.find(({ id }) => id === key);
      if (this.#sealing === undefined) this.#report(finding('key-unknown', { key }));
    }
    if (this.#options.before !== undefined && previous !== this.#options.before.previous) {
      this.#report(finding('chain-broken'));
    }
    if (this.#options.before !== undefined && first !== this.#options.before.nextSeq) {
      this.#report(finding('segment-out-of-order', { first, expected: this.#options.before.nextSeq }));
    }
    this.#previous = previous;
    this.#nextSeq = first;
  }

  #readRecord(block: Buffer, start: number, end: number): void {
    const digitsEnd = seqEnd(block, start);
    const seq = seqOf(block, start, digitsEnd);
    if (seq !== this.#nextSeq) {
      const kind = seq > this.#nextSeq ? 'records-missing' : 'record-misplaced';
      this.#report(finding(kind, { seq, expected: this.#nextSeq }));
    }
    this.#nextSeq = seq + 1;
    this.#batchFirst ??= seq;
    this.#batchRecords += 1;
    this.#lastRecord = undefined;
    if (!isAdmin(block, digitsEnd, end)) return;
    this.#lastRecord = block.toString('utf8', start, end);
    this.#batchAdmin.push({ line: this.#lastRecord, at: this.#line });
  }

  #readSeal(line: string, lines: Buffer, end: number): void {
    const digest = this.#digest(lines);
    const seal = parseSeal(line);
    const batch = this.#takeBatch();
    if (seal === undefined) {
      this.#report(finding('seal-malformed'));
      return;
    }
    this.#sealLineEnd = end;
    const asSealed = this.#fits(seal, digest, batch);
    const authentic = this.#isAuthentic(seal);
    this.#previous = seal.hmac;
    this.#nextSeq = seal.last + 1;
    if (!authentic) return;
    this.#sealed = { ...this.state, bytes: end, lines: this.#line };
    if (!asSealed) return;
    this.seals += 1;
    this.records += batch.records;
    this.#stopped = batch.lastRecord !== undefined && isStop(batch.lastRecord);
    for (const admin of batch.admin) this.#options.onAdmin?.(admin.line, admin.at);
    this.#options.onSeal?.(seal);
  }

  #takeBatch() {
    const batch = {
      from: this.#batchLine,
      first: this.#batchFirst,
      records: this.#batchRecords,
      admin: this.#batchAdmin,
      lastRecord: this.#lastRecord,
    };
    this.#batchLine = this.#line + 1;
    this.#batchFirst = undefined;
    this.#batchRecords = 0;
    this.#batchAdmin = [];
    this.#lastRecord = undefined;
    this.#stopped = false;
    return batch;
  }

  #fits(seal: Seal, digest: string, { from, first }: { from: number; first: number | undefined }): boolean {
    if (seal.sha256 !== digest) {
      this.#report(finding('batch-altered', { from, to: this.#line - 1 }), from);
      return false;
    }
    if ((first ?? this.#nextSeq) === seal.first && this.#nextSeq === seal.last + 1) return true;
    this.#report(finding('seal-range-invalid'));
    return false;
  }

  #isAuthentic(seal: Seal): boolean {
    if (this.#sealing === undefined) return false;
    const chain = { replica: this.#options.replica, previous: this.#previous };
    if (isAuthentic(this.#sealing, chain, seal)) return true;
    this.#report(finding('seal-invalid'));
    return false;
  }

  #digest(batch: Buffer): string {
    if (this.#hash === undefined) return hash('sha256', batch, 'base64url');
    const digest = this.#hash.update(batch).digest('base64url');
    this.#hash = undefined;
    return digest;
  }
}

/**
 * Walks through a segment file; `onBytes` is called for each block, with its bytes and how many bytes of the file it took.
 * @returns how many bytes at the end are no whole line
 * @throws Error if the file cannot be read or decompressed
 */
export async function walkFile(
  walk: ChainWalk,
  path: string,
  onBytes?: (count: number, stored: number) => void,
): Promise<number> {
  let torn = 0;
  for await (const { bytes, whole, stored } of readBlocks(path)) {
    onBytes?.(bytes.length, stored);
    if (!whole) torn = bytes.length;
    else if (!walk.walk(bytes)) break;
  }
  return torn;
}
