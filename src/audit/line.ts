/*
 * What can be told of a line without reading all of it: `{"seq":7,"time":"2026-01-01T00:00:00.000Z","kind":"access",…`.
 */

export const NEWLINE = 10;
const SEQ_START = '{"seq":';
const SEQ_MARK = Buffer.from(SEQ_START);
const TIME_AFTER = ',"time":"'.length;
const TIME_LENGTH = '2026-01-01T00:00:00.000Z'.length;
const KIND_AFTER = TIME_AFTER + TIME_LENGTH + '","kind":"'.length;
const DIGIT_0 = 48;
const DIGIT_9 = 57;
const KINDS: Readonly<Record<string, LineKind>> = { ac: 'access', ou: 'outcome', ad: 'admin' };

export type LineKind = 'access' | 'outcome' | 'admin';

/** The beginning of a record. */
export interface LineHead {
  readonly seq: number;
  /** RFC 3339 in UTC, always of the same length: texts that follow each other do so in time. */
  readonly time: string;
  readonly kind: LineKind;
}

/** Of the line that begins there; undefined: it is no record (but a header, a seal, or something that was changed). */
export function headOf(block: Buffer, start: number): LineHead | undefined {
  const digits = seqEnd(block, start);
  if (digits === undefined) return undefined;
  const kind = KINDS[block.toString('latin1', digits + KIND_AFTER, digits + KIND_AFTER + 2)];
  if (kind === undefined) return undefined;
  const time = digits + TIME_AFTER;
  return {
    seq: Number(block.toString('latin1', start + SEQ_START.length, digits)),
    time: block.toString('latin1', time, time + TIME_LENGTH),
    kind,
  };
}

/** The whole lines of a block, one after the other: where each begins, and where its line end is. */
export function* linesOf(block: Buffer): Generator<readonly [start: number, end: number], void> {
  for (let start = 0; start < block.length; ) {
    const end = block.indexOf(NEWLINE, start);
    if (end === -1) return;
    yield [start, end];
    start = end + 1;
  }
}

/** After the last digit of the number. */
function seqEnd(block: Buffer, start: number): number | undefined {
  const digits = start + SEQ_MARK.length;
  if (digits > block.length || block.compare(SEQ_MARK, 0, SEQ_MARK.length, start, digits) !== 0) {
    return undefined;
  }
  let at = digits;
  for (let digit = block[at] ?? 0; digit >= DIGIT_0 && digit <= DIGIT_9; digit = block[at] ?? 0) at += 1;
  return at;
}
