/*
 * Reads log lines from bytes without parsing the whole line. A record begins with
 * `{"seq":7,"time":"2026-01-01T00:00:00.000Z","kind":"access",`, a seal with `{"seal":`, a header with `{"segment":`, a
 * signed head with `{"checkpoint":`.
 */

export const NEWLINE = 10;
/** This character distinguishes records, seals and headers: `{"seq`, `{"sea`, `{"seg`. */
const TYPE_AT = 4;
const TYPE_RECORD = 'q'.charCodeAt(0);
const TYPE_SEAL = 'a'.charCodeAt(0);
const CHECKPOINT_MARK = Buffer.from('{"checkpoint":');
const SEQ_MARK = Buffer.from('{"seq":');
const TIME_AFTER = ',"time":"'.length;
const TIME_LENGTH = '2026-01-01T00:00:00.000Z'.length;
const KIND_AFTER = TIME_AFTER + TIME_LENGTH + '","kind":"'.length;
/** The second letter of `admin`; that of `access` and `outcome` is another. */
const ADMIN_SECOND = 'd'.charCodeAt(0);
const DIGIT_0 = 48;
const DIGIT_9 = 57;
const KINDS: Readonly<Record<string, LineKind>> = { ac: 'access', ou: 'outcome', ad: 'admin' };

type LineKind = 'access' | 'outcome' | 'admin';

/** The beginning of a record. */
export interface LineHead {
  readonly seq: number;
  /** RFC 3339 in UTC with milliseconds. All have the same length, so comparing texts compares times. */
  readonly time: string;
  readonly kind: LineKind;
}

/** The head of the record that begins at `start`; undefined: the line is not a record, or was changed. */
export function headOf(block: Buffer, start: number): LineHead | undefined {
  const mark = start + SEQ_MARK.length;
  if (mark > block.length || block.compare(SEQ_MARK, 0, SEQ_MARK.length, start, mark) !== 0) return undefined;
  const end = seqEnd(block, start);
  const kind = KINDS[block.toString('latin1', end + KIND_AFTER, end + KIND_AFTER + 2)];
  if (kind === undefined) return undefined;
  const time = end + TIME_AFTER;
  return { seq: seqOf(block, start, end), time: block.toString('latin1', time, time + TIME_LENGTH), kind };
}

/**
 * The type of the line from `start` to `end`; undefined: none of these. Records and seals are judged by one character,
 * since what follows in them is checked in any case.
 */
export function lineType(
  block: Buffer,
  start: number,
  end: number,
): 'record' | 'seal' | 'checkpoint' | undefined {
  // A shorter line would be judged by what follows it.
  if (end - start < SEQ_MARK.length) return undefined;
  const type = block[start + TYPE_AT];
  if (type === TYPE_RECORD) return 'record';
  if (type === TYPE_SEAL) return 'seal';
  const markEnd = start + CHECKPOINT_MARK.length;
  const isCheckpoint = markEnd <= end && block.compare(CHECKPOINT_MARK, 0, undefined, start, markEnd) === 0;
  return isCheckpoint ? 'checkpoint' : undefined;
}

/** Index after the last digit of the number of the record that begins at `start`. */
export function seqEnd(block: Buffer, start: number): number {
  let at = start + SEQ_MARK.length;
  for (let digit = block[at] ?? 0; digit >= DIGIT_0 && digit <= DIGIT_9; digit = block[at] ?? 0) at += 1;
  return at;
}

/** The number of the record that begins at `start`; `end`: its `seqEnd`. */
export function seqOf(block: Buffer, start: number, end: number): number {
  let seq = 0;
  for (let at = start + SEQ_MARK.length; at < end; at += 1) seq = seq * 10 + (block[at] ?? 0) - DIGIT_0;
  return seq;
}

/** True if the record whose `seqEnd` is `digitsEnd` is an admin record. `end`: the index of its line end. */
export function isAdmin(block: Buffer, digitsEnd: number, end: number): boolean {
  const second = digitsEnd + KIND_AFTER + 1;
  return second < end && block[second] === ADMIN_SECOND;
}

/** The whole lines of a block in order: the index of each, and the index of its line end. */
export function* linesOf(block: Buffer): Generator<readonly [start: number, end: number], void> {
  for (let start = 0; start < block.length; ) {
    const end = block.indexOf(NEWLINE, start);
    if (end === -1) return;
    yield [start, end];
    start = end + 1;
  }
}

/** The index of each line end. */
export function lineEnds(bytes: Buffer): number[] {
  const ends: number[] = [];
  for (let at = bytes.indexOf(NEWLINE); at !== -1; at = bytes.indexOf(NEWLINE, at + 1)) ends.push(at);
  return ends;
}

/** A record as it is in the log, without its line end. */
export interface NumberedLine extends LineHead {
  readonly line: string;
}

/** The records in whole lines, in their order. */
export function recordsIn(lines: Buffer): NumberedLine[] {
  return Array.from(linesOf(lines)).flatMap(([start, end]) => {
    const head = headOf(lines, start);
    return head === undefined ? [] : [{ ...head, line: lines.toString('utf8', start, end) }];
  });
}
