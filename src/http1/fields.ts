import { FieldNames, type RawHeaders } from '../base/raw-headers.ts';

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
export const SPACE = 0x20;
const SECTION_END = Buffer.from('\r\n\r\n');

/**
 * Field lines, each with its CRLF (RFC 9112 §5). A name is a token, so it has no space before the colon or at the start
 * of a continued line (RFC 9112 §5.1, §5.2); a value has no control character but the tab (RFC 9110 §5.5). One
 * expression for all of them: a test of each name and each value takes several times as long.
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

/**
 * True if the text from there to its end is this number of field lines, each with its CRLF, and an empty line. The number
 * shows a value that holds the end of a line.
 */
export function areFieldLines(text: string, from: number, count: number): boolean {
  FIELD_LINES.lastIndex = from;
  if (!FIELD_LINES.test(text) || FIELD_LINES.lastIndex + CRLF_LENGTH !== text.length) return false;
  let found = 0;
  for (let at = text.indexOf('\n', from); at !== -1; at = text.indexOf('\n', at + 1)) found += 1;
  return found === count + 1;
}

/** The text between two places, without spaces and tabs around it. */
function withoutSpace(text: string, from: number, to: number): string {
  let start = from;
  let end = to;
  // No control character but the tab is in a field line.
  while (start < end && text.charCodeAt(start) <= SPACE) start += 1;
  while (end > start && text.charCodeAt(end - 1) <= SPACE) end -= 1;
  return text.slice(start, end);
}

const DIGITS = /^\d+$/;
const CLOSE = /(?:^|,)[ \t]*close[ \t]*(?:,|$)/i;
const KEEP_ALIVE = /(?:^|,)[ \t]*keep-alive[ \t]*(?:,|$)/i;

const FRAMING_FIELDS = new FieldNames(['content-length', 'transfer-encoding']);
const CONNECTION_FIELDS = new FieldNames(['connection', 'proxy-connection', 'keep-alive', 'upgrade']);

/**
 * Reads a Content-Length; undefined: it is not one number. A repeated one is a list (`joinedValue`), and so no number:
 * RFC 9110 §8.6 allows equal ones, but another program might choose another of them.
 */
export function contentLength(value: string): number | undefined {
  const length = DIGITS.test(value) ? Number(value) : Number.NaN;
  return Number.isSafeInteger(length) ? length : undefined;
}

/**
 * True if the connection persists behind a message (RFC 9112 §9.3).
 * @param options all values of Connection, possibly none; if they disagree, close wins
 */
export function persists(options: string, isHttp11: boolean): boolean {
  return !CLOSE.test(options) && (isHttp11 || KEEP_ALIVE.test(options));
}

/** True if these fields, which are trailers, say something about the length of the body. */
export function hasFramingField(trailers: RawHeaders): boolean {
  return hasOneOf(trailers, FRAMING_FIELDS);
}

/** True if these fields, which are trailers, say something about the connection. */
export function hasConnectionField(trailers: RawHeaders): boolean {
  return hasOneOf(trailers, CONNECTION_FIELDS);
}

function hasOneOf(fields: RawHeaders, names: FieldNames): boolean {
  for (let at = 0; at < fields.length; at += 2) if (names.has(fields[at] ?? '')) return true;
  return false;
}

/**
 * Fields of a response that a browser keeps for its origin, or takes for the word of the server it asked. From an
 * upstream they would bind the gateway's own name: `Strict-Transport-Security` its scheme, `Clear-Site-Data` its
 * storage, `Proxy-Status` its errors (RFC 9209). A proxy in front of the gateway would obey others, such as
 * `X-Accel-Redirect`: nginx responds with another of its own locations, for the client and with its rights; and Envoy
 * takes a gateway out of its cluster that sends `X-Envoy-Immediate-Health-Check-Fail`. A cache obeys `X-Accel-Expires`
 * and its kind (RFC 9213) before `Cache-Control: private`: other clients would get the response.
 */
export const ORIGIN_FIELDS = [
  'accept-ch',
  'akamai-cache-control',
  'alt-svc',
  'cdn-cache-control',
  'clear-site-data',
  'cloudflare-cdn-cache-control',
  'critical-ch',
  'edge-cache-control',
  'edge-control',
  'expect-ct',
  'fastly-cache-control',
  'nel',
  'netlify-cdn-cache-control',
  'origin-agent-cluster',
  'proxy-status',
  'public-key-pins',
  'public-key-pins-report-only',
  'report-to',
  'reporting-endpoints',
  'sec-session-registration',
  'secure-session-registration',
  'service-worker-allowed',
  'set-login',
  'strict-transport-security',
  'surrogate-control',
  'use-as-dictionary',
  'vercel-cdn-cache-control',
  'x-accel-charset',
  'x-accel-expires',
  'x-accel-limit-rate',
  'x-accel-redirect',
  'x-archive-files',
  'x-envoy-degraded',
  'x-envoy-immediate-health-check-fail',
  'x-envoy-overloaded',
  'x-lighttpd-send-file',
  'x-litespeed-cache-control',
  'x-litespeed-location',
  'x-litespeed-purge',
  'x-reproxy-file',
  'x-reproxy-url',
  'x-sendfile',
  'x-sendfile2',
  'x-sendfile-temporary',
] as const;
