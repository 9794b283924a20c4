import { type Finding, finding } from '../findings.ts';
import type { AuditKeys } from '../keys.ts';
import { isAdmin, lineType, NEWLINE, seqEnd, seqOf } from '../line.ts';
import type { Digest } from '../merkle.ts';
import { checkSeal, GENESIS, LARGEST_BATCH, parseSeal, type Seal } from '../seal.ts';
import { endsProcess } from './admin-records.ts';
import { parseHeader, type SegmentHeader } from './segment.ts';
import { readBlocks } from './segment-reader.ts';

/** Integrity errors of one segment that are reported. */
export const MOST_ERRORS = 20;

/** Bytes of batches without a new record, beyond those that other batches allow, after which a segment is not read on. */
const MAX_EMPTY = 4 * 1024 * 1024;
/** Bytes of such batches that one with new records allows: a signed head follows it, and the seal of a start. */
const ALLOWED_EMPTY = 4096;

/** A place in a segment that cannot be as the gateway wrote it. */
export interface IntegrityError extends Finding {
  /** In the segment, from 1. */
  readonly line: number;
}

/** Lines of a segment up to a seal, or after the last one. */
export interface WalkedBatch {
  /** The header of the segment; undefined: its first line is none. */
  readonly header: SegmentHeader | undefined;
  /** Undefined: the line is no seal any more, or there is none. */
  readonly seal: Seal | undefined;
  /** `hmac` of the previous seal. */
  readonly previous: string;
  /** The lines before the seal; valid until the next block. */
  readonly lines: Buffer;
  /** The leaf hash of each line, if the seal is over them. */
  readonly leaves: readonly Digest[] | undefined;
  /** `sealed`: a key made the seal for just these lines; `unchecked`: the key is unknown; `refused`: neither. */
  readonly trust: 'sealed' | 'unchecked' | 'refused';
  /** The admin records among the lines of a `sealed` batch. */
  readonly admin: readonly AdminLine[];
  /** The same of an `unchecked` batch, which anybody can have written. */
  readonly uncheckedAdmin: readonly AdminLine[];
  readonly errors: readonly IntegrityError[];
  /** Number of the first of the lines in the segment. */
  readonly line: number;
}

export interface AdminLine {
  readonly line: string;
  /** Number of the record, and of its line in the segment. */
  readonly seq: number;
  readonly at: number;
}

interface WalkOptions {
  /** `unknown`: who reads has none, and believes signed heads; a seal is then compared with its lines only. */
  readonly keys: readonly AuditKeys[] | 'unknown';
  readonly replica: string;
  /** Number of the first record of the segment, as its name has it. */
  readonly first: number;
  /** Where the chain stood at the end of the previous segment; undefined: the header is believed. */
  readonly before?: ChainState | undefined;
  /** Integrity errors after which the rest of the segment is not read; without it, 20. */
  readonly mostErrors?: number;
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

/** Lines that no seal was found for yet. */
class OpenBatch {
  /** Number of its first line in the segment. */
  readonly line: number;
  readonly admin: AdminLine[] = [];
  readonly errors: IntegrityError[] = [];
  /** Number of its first record, and how many it has. */
  first: number | undefined;
  records = 0;
  /** The last record, if that is an admin record. */
  last: string | undefined;

  constructor(line: number) {
    this.line = line;
  }
}

interface BatchFacts {
  readonly records: number;
  /** Number of the last record. */
  readonly last: number;
  readonly bytes: number;
  /** True: its seal fits it, and the key of the segment made the seal, if that is at hand. */
  readonly asSealed: boolean;
  readonly hasKey: boolean;
}

/**
 * Counts the batches of a segment that have no new record. A gateway writes few of them, but zstd makes a few KB of a
 * million: without a bound, such a file keeps every reader busy.
 */
class EmptyBatches {
  #last = 0;
  #bytes = 0;

  add({ records, last, bytes, asSealed, hasKey }: BatchFacts): void {
    // Nobody without the key can make an empty batch that it seals.
    if (asSealed && hasKey && records === 0) return;
    if (asSealed && records > 0 && last > this.#last) {
      this.#last = last;
      this.#bytes = Math.max(0, this.#bytes - ALLOWED_EMPTY);
    } else {
      this.#bytes += bytes;
    }
  }

  /** True if no gateway wrote the segment as it is. */
  get isExceeded(): boolean {
    return this.#bytes > MAX_EMPTY;
  }
}

type Checked = Pick<WalkedBatch, 'leaves'> & { readonly asSealed: boolean };

const NOT_SEALED: Checked = { asSealed: false, leaves: undefined };

/**
 * Follows the chain through one segment, line by line, and checks each seal. After an integrity error the walk goes on
 * with what the segment itself says, so one changed byte is one error. Only lines under a seal that a key made count.
 */
export class ChainWalk {
  readonly #options: WalkOptions;
  /** The key that the header names; empty: it is unknown, or the header is not of this segment. */
  #sealing: readonly AuditKeys[] = [];
  #isOurs = false;
  #header: SegmentHeader | undefined;
  #previous: string;
  #nextSeq: number;
  #line = 0;
  #batch = new OpenBatch(1);
  #offset = 0;
  #sealLineEnd = 0;
  #sealed: SealedEnd | undefined;
  #stopped = false;
  readonly #empty = new EmptyBatches();
  #errors = 0;
  /** Records under seals of a key, such seals, and bytes at the end that are not a whole line. */
  records = 0;
  seals = 0;
  torn = 0;

  constructor(options: WalkOptions) {
    this.#options = options;
    this.#previous = options.before?.previous ?? GENESIS;
    this.#nextSeq = options.before?.nextSeq ?? 1;
  }

  /** The header as it is in the segment; to be trusted only if there is a `sealed` end. */
  get header(): SegmentHeader | undefined {
    return this.#header;
  }

  /** True if the header is of this replica and names one of the keys, or the keys are unknown. */
  get keyKnown(): boolean {
    return this.#sealing.length > 0 || (this.#isOurs && this.#options.keys === 'unknown');
  }

  /** True if the header is of this replica and names none of the keys. */
  get keyUnknown(): boolean {
    return this.#isOurs && !this.keyKnown;
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

  /** Records after the last seal, and whole lines of any kind. */
  get unsealed(): { readonly records: number; readonly lines: number } {
    const { records, line } = this.#batch;
    return { records, lines: this.#line + 1 - line };
  }

  /** The line after the last seal. */
  get unsealedLine(): number {
    return this.#batch.line;
  }

  /** True if the last record under a seal says that the process stopped, and no other process has begun. */
  get stopped(): boolean {
    return this.#stopped;
  }

  get lines(): number {
    return this.#line;
  }

  /** True if no gateway wrote what follows, so that it need not be read. */
  get isOver(): boolean {
    return this.#errors > (this.#options.mostErrors ?? MOST_ERRORS) || this.#empty.isExceeded;
  }

  /** Takes the next block, which ends with a seal. */
  walk(block: Buffer): WalkedBatch[] {
    const batches: WalkedBatch[] = [];
    let batchStart = 0;
    for (let start = 0; start < block.length && !this.isOver; ) {
      const end = block.indexOf(NEWLINE, start);
      if (this.#readLine(block, start, end)) {
        const line = block.toString('latin1', start, end);
        batches.push(this.#readSeal(line, block.subarray(batchStart, start), this.#offset + end + 1));
        batchStart = end + 1;
      }
      start = end + 1;
    }
    this.#offset += block.length;
    if (this.isOver) batches.push(this.#unsealedBatch(block.subarray(batchStart)));
    return batches;
  }

  /** Takes what follows the last seal. */
  end(rest: Buffer): WalkedBatch {
    const lines = rest.subarray(0, rest.lastIndexOf(NEWLINE) + 1);
    this.torn = rest.length - lines.length;
    for (let start = 0; start < lines.length && !this.isOver; ) {
      const end = lines.indexOf(NEWLINE, start);
      this.#readLine(lines, start, end);
      start = end + 1;
    }
    if (lines.length > LARGEST_BATCH && !this.isOver) {
      this.#report(finding('batch-too-large'), this.#batch.line);
    }
    return this.#unsealedBatch(lines);
  }

  #unsealedBatch(lines: Buffer): WalkedBatch {
    const { line, errors } = this.#batch;
    const state = { header: this.#header, seal: undefined, previous: this.#previous, leaves: undefined };
    const none = { trust: 'refused', admin: [], uncheckedAdmin: [] } as const;
    return { ...state, ...none, lines, errors: errors.splice(0), line };
  }

  /** Reads a line; true: it is a seal, which is left to the caller. */
  #readLine(block: Buffer, start: number, end: number): boolean {
    this.#line += 1;
    const type = lineType(block, start, end);
    if (this.#line === 1) this.#readHeader(block.toString('utf8', start, end));
    else if (type === 'record') this.#readRecord(block, start, end);
    // A segment without a tree has no signed heads.
    else if (type === undefined || (type === 'checkpoint' && this.#header?.tree === undefined))
      this.#report(finding('line-invalid'));
    return type === 'seal';
  }

  #report(found: Finding, line = this.#line): void {
    this.#errors += 1;
    // A file can have any number of them.
    if (this.#batch.errors.length <= MOST_ERRORS)
      this.#batch.errors.push({ ...(this.isOver ? finding('errors-omitted') : found), line });
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
      this.#isOurs = true;
      const { keys } = this.#options;
      this.#sealing = keys === 'unknown' ? [] : keys.filter(({ id }) => id === key);
      if (this.keyUnknown) this.#report(finding('key-unknown', { key }));
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
    const batch = this.#batch;
    batch.first ??= seq;
    batch.records += 1;
    batch.last = isAdmin(block, digitsEnd, end) ? block.toString('utf8', start, end) : undefined;
    if (batch.last !== undefined) batch.admin.push({ line: batch.last, seq, at: this.#line });
  }

  #readSeal(line: string, lines: Buffer, end: number): WalkedBatch {
    const seal = parseSeal(line);
    const previous = this.#previous;
    const { line: at, admin, errors, records, last } = this.#batch;
    const { asSealed, leaves } = seal === undefined ? NOT_SEALED : this.#check(seal, lines, end);
    if (seal === undefined) this.#report(finding('seal-malformed'));
    const [bytes, hasKey] = [lines.length + line.length, this.#sealing.length > 0];
    this.#empty.add({ records, last: this.#nextSeq - 1, bytes, asSealed, hasKey });
    if (this.#empty.isExceeded) this.#report(finding('errors-omitted'));
    const isSealed = asSealed && this.keyKnown;
    if (isSealed) {
      this.seals += 1;
      this.records += records;
    }
    // A process that stops signs a head after its last record; the next one begins with a seal over nothing, or a header.
    if (records > 0 || this.#line === at || at === 1 || !isSealed) {
      this.#stopped = isSealed && last !== undefined && endsProcess(last);
    }
    this.#batch = new OpenBatch(this.#line + 1);
    const trust = isSealed ? 'sealed' : asSealed ? 'unchecked' : 'refused';
    const byTrust = { admin: isSealed ? admin : [], uncheckedAdmin: trust === 'unchecked' ? admin : [] };
    return { header: this.#header, seal, previous, lines, leaves, trust, ...byTrust, errors, line: at };
  }

  /** `asSealed`: the seal is for just these lines, and the key of the segment made it, unless that is unknown. */
  #check(seal: Seal, lines: Buffer, end: number): Checked {
    const chain = { replica: this.#options.replica, previous: this.#previous };
    const check = checkSeal(this.#sealing, chain, seal, lines);
    const { fits, leaves } = check;
    const authentic = check.authentic || this.#options.keys === 'unknown';
    this.#sealLineEnd = end;
    const isOfBatch = this.#isOfBatch(seal, fits);
    if (this.keyKnown && !authentic) this.#report(finding('seal-invalid'));
    this.#previous = seal.hmac;
    this.#nextSeq = seal.last + 1;
    if (authentic) this.#sealed = { ...this.state, bytes: end, lines: this.#line };
    return { asSealed: isOfBatch && (authentic || this.keyUnknown), leaves };
  }

  #isOfBatch(seal: Seal, fits: boolean): boolean {
    if (!fits) {
      const from = this.#batch.line;
      this.#report(finding('batch-altered', { from, to: this.#line - 1 }), from);
      return false;
    }
    if ((this.#batch.first ?? this.#nextSeq) === seal.first && this.#nextSeq === seal.last + 1) return true;
    this.#report(finding('seal-range-invalid'));
    return false;
  }
}

/**
 * Walks through a segment file; the last batch is what follows the last seal. `take` gets each batch, and ends the walk
 * by returning true.
 * @throws Error if the file cannot be read or decompressed
 */
export async function walkFile(
  walk: ChainWalk,
  path: string,
  take: (batch: WalkedBatch) => unknown,
  onBytes?: (count: number, stored: number) => void,
): Promise<void> {
  for await (const { bytes, whole, stored } of readBlocks(path, 'seal')) {
    onBytes?.(bytes.length, stored);
    if (!whole) take(walk.end(bytes));
    else if (walk.walk(bytes).some((batch) => take(batch) === true) || walk.isOver) return;
  }
}
