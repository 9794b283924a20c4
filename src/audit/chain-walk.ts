import { createHash, type Hash, hash } from 'node:crypto';
import type { AuditKeys } from './keys.ts';
import { GENESIS, hmacOf, parseSeal, type Seal } from './seal.ts';
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

/** Something that cannot be as the gateway wrote it. */
export interface Fault {
  /** In the segment, from 1. */
  readonly line: number;
  readonly message: string;
}

export interface WalkEvents {
  readonly onFault: (fault: Fault) => void;
  readonly onSeal?: (seal: Seal) => void;
  /** A whole admin line. */
  readonly onAdmin?: (line: string) => void;
}

/** Where a chain stands between two segments. */
export interface ChainState {
  readonly previous: string;
  readonly nextSeq: number;
}

/**
 * Follows the chain through one segment, line by line. A fault is told where it is found, and the walk goes on with
 * what the segment itself says, so that one changed byte is one fault.
 */
export class ChainWalk {
  readonly #keys: readonly AuditKeys[];
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
  #offset = 0;
  #sealedEnd = 0;
  records = 0;
  seals = 0;

  /** `before`: where the chain stood at the end of the segment before; undefined: the header is to be believed. */
  constructor(keys: readonly AuditKeys[], before: ChainState | undefined, events: WalkEvents) {
    this.#keys = keys;
    this.#before = before;
    this.#events = events;
    this.#previous = before?.previous ?? GENESIS;
    this.#nextSeq = before?.nextSeq ?? 1;
  }

  get header(): SegmentHeader | undefined {
    return this.#header;
  }

  /** Where the next segment has to go on. */
  get state(): ChainState {
    return { previous: this.#previous, nextSeq: this.#nextSeq };
  }

  /** Bytes up to the end of the last seal. */
  get sealedEnd(): number {
    return this.#sealedEnd;
  }

  /** Records after the last seal. */
  get unsealed(): number {
    return this.#batchFirst === undefined ? 0 : this.#nextSeq - this.#batchFirst;
  }

  /** Number of the first record after the last seal; undefined: there is none. */
  get batchFirst(): number | undefined {
    return this.#batchFirst;
  }

  get lines(): number {
    return this.#line;
  }

  /** The next lines, each with its end. */
  walk(block: Buffer): void {
    let batchStart = 0;
    let start = 0;
    while (start < block.length) {
      const end = block.indexOf(NEWLINE, start);
      this.#line += 1;
      const kind = block[start + KIND_AT];
      if (this.#line === 1) this.#readHeader(block.toString('utf8', start, end));
      else if (kind === RECORD) this.#readRecord(block, start, end);
      else if (kind === SEAL) {
        this.#readSeal(block.toString('latin1', start, end), block.subarray(batchStart, start));
        batchStart = end + 1;
        this.#sealedEnd = this.#offset + batchStart;
      } else this.#fault('is neither a record nor a seal: it was changed or inserted');
      start = end + 1;
    }
    if (batchStart < block.length) {
      this.#hash ??= createHash('sha256');
      this.#hash.update(block.subarray(batchStart));
    }
    this.#offset += block.length;
  }

  #fault(message: string, line = this.#line): void {
    this.#events.onFault({ line, message });
  }

  #readHeader(line: string): void {
    const header = parseHeader(line);
    this.#header = header;
    if (header === undefined) {
      this.#fault('is not the header of a segment: it was changed or removed');
      return;
    }
    this.#sealing = this.#keys.find(({ id }) => id === header.key);
    if (this.#sealing === undefined) {
      this.#fault(`is sealed with another key (${header.key}): give that one`);
    }
    const { previous, first } = header;
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
    this.records += 1;
    if (block[at - 1 + AFTER_SEQ + 1] === ADMIN) this.#events.onAdmin?.(block.toString('utf8', start, end));
  }

  #wrongSeq(seq: number): void {
    const expected = this.#nextSeq;
    this.#fault(
      seq > expected
        ? `has number ${seq} where ${expected} belongs: ${seq - expected} records before it are missing`
        : `has number ${seq} where ${expected} belongs: it was inserted or moved`,
    );
  }

  #readSeal(line: string, batch: Buffer): void {
    const digest = this.#digest(batch);
    const seal = parseSeal(line);
    const from = this.#batchLine;
    const first = this.#batchFirst;
    this.#batchLine = this.#line + 1;
    this.#batchFirst = undefined;
    this.seals += 1;
    if (seal === undefined) {
      this.#fault('is a seal that was changed');
      return;
    }
    const to = this.#line - 1;
    if (seal.sha256 !== digest) {
      const lines = from >= to ? `line ${to} was` : `one of the lines ${from} to ${to} was`;
      this.#fault(`${lines} changed, inserted, moved or removed: it does not fit its seal`, from);
    } else if (first !== seal.first || this.#nextSeq !== seal.last + 1) {
      this.#fault('is a seal of other records than those before it');
    }
    this.#checkHmac(seal);
    this.#previous = seal.hmac;
    this.#nextSeq = seal.last + 1;
    this.#events.onSeal?.(seal);
  }

  #checkHmac(seal: Seal): void {
    if (this.#sealing === undefined || this.#header === undefined) return;
    const chain = { replica: this.#header.replica, previous: this.#previous };
    if (hmacOf(this.#sealing, chain, seal) === seal.hmac) return;
    this.#fault('is a seal that was changed, or does not continue the one before: lines between are missing');
  }

  #digest(batch: Buffer): string {
    if (this.#hash === undefined) return hash('sha256', batch, 'base64url');
    const digest = this.#hash.update(batch).digest('base64url');
    this.#hash = undefined;
    return digest;
  }
}

function digitAt(block: Buffer, at: number): number | undefined {
  const digit = (block[at] ?? 0) - DIGIT_0;
  return digit >= 0 && digit <= 9 ? digit : undefined;
}
