import type { RawHeaders } from '../base/raw-headers.ts';

/** The part of a message that is malformed, or too large. */
export type MessagePart =
  | 'start-line'
  | 'line-end'
  | 'field'
  | 'head-size'
  | 'chunk'
  | 'chunk-framing'
  | 'trailers-size';

/** A message that is not valid HTTP/1.1, or larger than allowed. Whoever reads it says so in words of its own. */
export class MalformedMessage extends Error {
  override readonly name = 'MalformedMessage';
  readonly part: MessagePart;

  constructor(part: MessagePart) {
    super(part);
    this.part = part;
  }
}

export const CRLF_LENGTH = 2;
export const [LF, CR] = [0x0a, 0x0d];
const [TAB, SPACE] = [0x09, 0x20];
const SECTION_END = Buffer.from('\r\n\r\n');

/**
 * Field lines, each with its CRLF (RFC 9112 §5). A name is a token, so it has no space before the colon or at the start
 * of a continued line (RFC 9112 §5.1, §5.2); a value has no control character but the tab (RFC 9110 §5.5). One expression for all of them: a test of
 * each name and each value takes several times as long.
 */
const FIELD_LINES = /(?:[!#$%&'*+.^_`|~\w-]+:[\t\x20-\x7e\x80-\xff]*\r\n)*/y;

/**
 * The place behind the empty line that ends a head or trailer section; -1: it has not come.
 * @param known up to where the bytes were searched before
 * @param most the largest section in bytes
 * @throws MalformedMessage if the section is larger (`tooLarge`), or a line of it ends without CR
 */
export function sectionEnd(
  input: Buffer,
  at: number,
  known: number,
  most: number,
  tooLarge: 'head-size' | 'trailers-size',
): number {
  const found = input.indexOf(SECTION_END, Math.max(at, known - SECTION_END.length + 1));
  const end = found === -1 ? input.length : found + SECTION_END.length;
  if (end - at > most) throw new MalformedMessage(tooLarge);
  if (found !== -1) return end;
  // A line that ends without CR may be all that comes: waiting for the rest would be in vain.
  for (let lf = input.indexOf(LF, known); lf !== -1; lf = input.indexOf(LF, lf + 1)) {
    if (input[lf - 1] !== CR) throw new MalformedMessage('line-end');
  }
  return -1;
}

/**
 * Reads field lines, each with its CRLF, from there to the end of the text.
 * @throws MalformedMessage
 */
export function fieldLines(text: string, from: number): RawHeaders {
  FIELD_LINES.lastIndex = from;
  if (!FIELD_LINES.test(text) || FIELD_LINES.lastIndex !== text.length) throw new MalformedMessage('field');
  const fields: string[] = [];
  for (let at = from; at < text.length; ) {
    const colon = text.indexOf(':', at);
    const end = text.indexOf('\r\n', colon);
    fields.push(text.slice(at, colon), withoutSpace(text, colon + 1, end));
    at = end + 2;
  }
  return fields;
}

/** The text between two places, without spaces and tabs around it. */
function withoutSpace(text: string, from: number, to: number): string {
  let [start, end] = [from, to];
  while (start < end && isSpace(text.charCodeAt(start))) start += 1;
  while (end > start && isSpace(text.charCodeAt(end - 1))) end -= 1;
  return text.slice(start, end);
}

function isSpace(code: number): boolean {
  return code === SPACE || code === TAB;
}
