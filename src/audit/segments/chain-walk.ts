import { createHash, type Hash, hash } from 'node:crypto';
import type { AuditKeys } from '../keys.ts';
import { GENESIS, isAuthentic, LARGEST_BATCH, parseSeal, type Seal } from '../seal.ts';
import { parseHeader, type SegmentHeader } from './segment.ts';

const NEWLINE = 10;
/** The character after `{"se` tells a record, a seal and a header apart. */
const KIND_AT = 4;
const RECORD = 'q'.charCodeAt(0);
const SEAL = 'a'.charCodeAt(0);
const SEQ_AT = '{"seq":'.length;
const DIGIT_0 = 48;
/** From the last digit of the number to the second letter of the kind, which is `d` for admin alone. */
const AFTER_SEQ = ',"time":"2026-01-01T00:00:00.000Z","kind":"a'.length;
const ADMIN = 'd'.charCodeAt(0);
const STOP = '"event":"stop"';
/** Faults of one segment that are told. */
const MOST_FAULTS = 20;

/** Something that cannot be as the gateway wrote it. */
export interface Fault {
  /** In the segment, from 1. */
  readonly line: number;
  readonly message: string;
}

export interface WalkEvents {
  readonly onFault: (fault: Fault) => void;
  /** A seal that a key made, on lines that are as they were sealed. */
  readonly onSeal?: (seal: Seal) => void;
  /** A whole admin line under such a seal, and its number in the segment; before `onSeal`. */
  readonly onAdmin?: (line: string, at: number) => void;
}

/** Where a chain stands between two segments. */
export interface ChainState {
  readonly previous: string;
  readonly nextSeq: number;
}

/** The segment that is walked through. */
export interface Walked {
  readonly replica: string;
  /** Number of the first record, as its name has it. */
  readonly first: number;
}

/** The end of the last seal that a key made. */
interface SealedEnd extends ChainState {
  readonly bytes: number;
  readonly lines: number;
}

/**
 * Follows the chain through one segment, line by line. A fault is told where it is found, and the walk goes on with
 * what the segment itself says, so that one changed byte is one fault. Only what stands under a seal that a key made is
 * told as `onAdmin` and `onSeal`, or counted.
 */
export class ChainWalk {
  readonly #keys: readonly AuditKeys[];
  readonly #walked: Walked;
  readonly #events: WalkEvents;
  readonly #before: ChainState | undefined;
  #sealing: AuditKeys | undefined;
  #header: SegmentHeader | undefined;
  #previous: string;
  #nextSeq: number;
  #line = 0;
  /** Of the lines since the last seal that came in blocks before. */
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
  #faults = 0;
  #over = false;
  records = 0;
  seals = 0;

  /** `before`: where the chain stood at the end of the segment before; undefined: the header is to be believed. */
  constructor(
    keys: readonly AuditKeys[],
    walked: Walked,
    before: ChainState | undefined,
    events: WalkEvents,
  ) {
    this.#keys = keys;
    this.#walked = walked;
    this.#before = before;
    this.#events = events;
    this.#previous = before?.previous ?? GENESIS;
    this.#nextSeq = before?.nextSeq ?? 1;
  }

  /** As it stands in the segment; it counts if there is a `sealed` end. */
  get header(): SegmentHeader | undefined {
    return this.#header;
  }

  /** Whether one of the keys is that of the header, and it is the header of this replica. */
  get keyKnown(): boolean {
    return this.#sealing !== undefined;
  }

  /** Where the next segment has to go on, as the segment itself says. */
  get state(): ChainState {
    return { previous: this.#previous, nextSeq: this.#nextSeq };
  }

  /** The end of the last seal that a key made; undefined: there is none. */
  get sealed(): SealedEnd | undefined {
    return this.#sealed;
  }

  /** Bytes up to the end of the last line that is a seal, whoever made it. */
  get sealLineEnd(): number {
    return this.#sealLineEnd;
  }

  /** Records after the last seal, and the line on which the first of them is, or would be. */
  get unsealed(): number {
    return this.#batchRecords;
  }

  get unsealedLine(): number {
    return this.#batchLine;
  }

  /** Whether the last record under the last seal says that the process stopped. */
  get stopped(): boolean {
    return this.#stopped;
  }

  get lines(): number {
    return this.#line;
  }

  /** The next lines, each with its end. False: what follows cannot be of a gateway, and need not be read. */
  walk(block: Buffer): boolean {
    if (this.#over) return false;
    let batchStart = 0;
    for (let start = 0; start < block.length && !this.#over; ) {
      const end = block.indexOf(NEWLINE, start);
      this.#line += 1;
      const kind = block[start + KIND_AT];
      if (this.#line === 1) this.#readHeader(block.toString('utf8', start, end));
      else if (kind === RECORD) this.#readRecord(block, start, end);
      else if (kind === SEAL) {
        const line = block.toString('latin1', start, end);
        this.#readSeal(line, block.subarray(batchStart, start), this.#offset + end + 1);
        batchStart = end + 1;
      } else this.#fault('is neither a record nor a seal: it was changed or inserted');
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
    this.#fault('and what follows have no seal, and are more than one seal covers', this.#batchLine);
    this.#over = true;
  }

  #fault(message: string, line = this.#line): void {
    this.#faults += 1;
    if (this.#faults <= MOST_FAULTS) this.#events.onFault({ line, message });
    else {
      this.#events.onFault({ line, message: 'is wrong, too: what follows was not looked at' });
      this.#over = true;
    }
  }

  #readHeader(line: string): void {
    const header = parseHeader(line);
    this.#header = header;
    if (header === undefined) {
      this.#fault('is not the header of a segment: it was changed or removed');
      return;
    }
    const { previous, first, replica, key } = header;
    if (replica !== this.#walked.replica) this.#fault(`is the log of another replica (${replica})`);
    else if (first !== this.#walked.first) this.#fault(`begins with record ${first}: the file was renamed`);
    else {
      this.#sealing = this.#keys.find(({ id }) => id === key);
      if (this.#sealing === undefined) this.#fault(`is sealed with another key (${key}): give that one`);
    }
    if (this.#before !== undefined && previous !== this.#before.previous) {
      this.#fault('does not continue the segment before: something between them is missing or was changed');
    }
    if (this.#before !== undefined && first !== this.#before.nextSeq) {
      this.#fault(`begins with record ${first} where ${this.#before.nextSeq} belongs`);
    }
    this.#previous = previous;
    this.#nextSeq = first;
  }

  #readRecord(block: Buffer, start: number, end: number): void {
    let at = start + SEQ_AT;
    let seq = 0;
    for (let digit = digitAt(block, at); digit !== undefined; digit = digitAt(block, at)) {
      seq = seq * 10 + digit;
      at += 1;
    }
    if (seq !== this.#nextSeq) this.#wrongSeq(seq);
    this.#nextSeq = seq + 1;
    this.#batchFirst ??= seq;
    this.#batchRecords += 1;
    this.#lastRecord = undefined;
    if (block[at - 1 + AFTER_SEQ + 1] !== ADMIN) return;
    this.#lastRecord = block.toString('utf8', start, end);
    this.#batchAdmin.push({ line: this.#lastRecord, at: this.#line });
  }

  #wrongSeq(seq: number): void {
    const expected = this.#nextSeq;
    this.#fault(
      seq > expected
        ? `has number ${seq} where ${expected} belongs: ${seq - expected} records before it are missing`
        : `has number ${seq} where ${expected} belongs: it was inserted or moved`,
    );
  }

  #readSeal(line: string, lines: Buffer, end: number): void {
    const digest = this.#digest(lines);
    const seal = parseSeal(line);
    const batch = this.#takeBatch();
    if (seal === undefined) {
      this.#fault('is a seal that was changed');
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
    this.#stopped = batch.lastRecord?.includes(STOP) === true && eventOf(batch.lastRecord) === 'stop';
    for (const admin of batch.admin) this.#events.onAdmin?.(admin.line, admin.at);
    this.#events.onSeal?.(seal);
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
    const to = this.#line - 1;
    if (seal.sha256 !== digest) {
      const lines = from >= to ? `line ${to} was` : `one of the lines ${from} to ${to} was`;
      this.#fault(`${lines} changed, inserted, moved or removed: it does not fit its seal`, from);
      return false;
    }
    if ((first ?? this.#nextSeq) === seal.first && this.#nextSeq === seal.last + 1) return true;
    this.#fault('is a seal of other records than those before it');
    return false;
  }

  #isAuthentic(seal: Seal): boolean {
    if (this.#sealing === undefined) return false;
    const chain = { replica: this.#walked.replica, previous: this.#previous };
    if (isAuthentic(this.#sealing, chain, seal)) return true;
    this.#fault('is a seal that was changed, or does not continue the one before: lines between are missing');
    return false;
  }

  #digest(batch: Buffer): string {
    if (this.#hash === undefined) return hash('sha256', batch, 'base64url');
    const digest = this.#hash.update(batch).digest('base64url');
    this.#hash = undefined;
    return digest;
  }
}

function eventOf(line: string): unknown {
  try {
    return (JSON.parse(line) as { event?: unknown }).event;
  } catch {
    return undefined;
  }
}

function digitAt(block: Buffer, at: number): number | undefined {
  const digit = (block[at] ?? 0) - DIGIT_0;
  return digit >= 0 && digit <= 9 ? digit : undefined;
}
