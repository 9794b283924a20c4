import { GatewayError } from '../base/errors.ts';
import { FieldNames, fieldValue, isFieldValue, type RawHeaders } from '../base/raw-headers.ts';
import { fieldLines, MalformedMessage } from '../http1/fields.ts';

/**
 * RFC 9112 §4. Some servers leave out the space before an empty phrase. RTSP, ICY and HTTP/2.0 have lines of this form,
 * and are something else; so is a status below 100.
 */
const STATUS_LINE = /^HTTP\/1\.([01]) ([1-9]\d\d)(?: ([^\r\n]*))?\r\n/;
const STATUS_LINE_START = /^HTTP\/1\.[01] [1-9]\d\d[ \r]/;
const ANY_STATUS_LINE = 'HTTP/1.1 200 ';
const DIGITS = /^\d+$/;
const KEEP_ALIVE_TIMEOUT = /timeout=(\d+)/;

const FRAMING_TRAILER =
  'The upstream sent Content-Length or Transfer-Encoding in the trailers of a response (RFC 9110 §6.5.1).';
const AMBIGUOUS_LENGTH =
  'The upstream sent a response whose length can be read in two ways: Content-Length is repeated, is no number, or comes with Transfer-Encoding, or Transfer-Encoding is malformed (RFC 9112 §6.3).';

export interface ResponseHead {
  readonly status: number;
  /** Latin-1 text; empty if it holds control characters, since no client could be sent it. */
  readonly reason: string;
  readonly headers: RawHeaders;
  readonly isHttp11: boolean;
}

/** The length of the body and the use of the connection, from the fields of a head. */
export interface Framing {
  /** Content-Length in bytes; undefined: none. */
  length: number | undefined;
  /** Transfer-Encoding, its lines joined; undefined: none. */
  codings: string | undefined;
  /** Connection and Proxy-Connection, their lines joined; undefined: none. */
  options: string | undefined;
  /** Seconds after which the upstream closes the connection if it is idle; undefined: it does not say. */
  keepAliveSeconds: number | undefined;
  /** True if the upstream serves further requests on the connection. */
  isPersistent: boolean;
}

/**
 * Reads a head, from its status line to the end of its last field line.
 * @throws MalformedMessage
 */
export function responseHead(text: string): ResponseHead {
  const [line = '', minor, status, phrase = ''] = STATUS_LINE.exec(text) ?? [];
  if (status === undefined) throw new MalformedMessage('start-line');
  return {
    status: Number(status),
    reason: isFieldValue(phrase) ? phrase : '',
    headers: fieldLines(text, line.length),
    isHttp11: minor === '1',
  };
}

/** True if the text can be the start of a head. */
export function isStartOfHead(text: string): boolean {
  return STATUS_LINE_START.test(text + ANY_STATUS_LINE.slice(text.length));
}

/**
 * Returns what a head says about the body and the connection.
 * @throws GatewayError `upstream-protocol` if it says two things
 */
export function framingOf({ headers, isHttp11 }: ResponseHead): Framing {
  const framing: Framing = {
    length: undefined,
    codings: undefined,
    options: undefined,
    keepAliveSeconds: undefined,
    isPersistent: isHttp11,
  };
  for (let at = 0; at < headers.length; at += 2) {
    const name = headers[at] ?? '';
    if (FRAMING_NAMES.has(name)) takeField(framing, name.toLowerCase(), headers[at + 1] ?? '');
  }
  const { codings, length, options } = framing;
  if (codings !== undefined && length !== undefined) throw ambiguousLength();
  if (options !== undefined) framing.isPersistent = isKept(options, isHttp11);
  // RFC 9112 §6.1: HTTP/1.0 has no Transfer-Encoding, so the end of the body is uncertain.
  if (codings !== undefined && !isHttp11) framing.isPersistent = false;
  return framing;
}

/** @param name in lower case */
function takeField(framing: Framing, name: string, value: string): void {
  if (name === 'content-length') {
    // Equal repetitions may be accepted (RFC 9110 §8.6), but a client of the gateway might read them otherwise.
    if (framing.length !== undefined) throw ambiguousLength();
    framing.length = contentLength(value);
  } else if (name === 'transfer-encoding') {
    framing.codings = joined(framing.codings, value);
  } else if (name === 'connection' || name === 'proxy-connection') {
    framing.options = joined(framing.options, value);
  } else if (name === 'keep-alive') {
    const [, seconds] = KEEP_ALIVE_TIMEOUT.exec(value) ?? [];
    if (seconds !== undefined) framing.keepAliveSeconds = Number(seconds);
  }
}

function joined(list: string | undefined, value: string): string {
  return list === undefined ? value : `${list},${value}`;
}

/** The names that `framingOf` looks for. */
const FRAMING_NAMES = new FieldNames([
  'content-length',
  'transfer-encoding',
  'connection',
  'proxy-connection',
  'keep-alive',
]);

function contentLength(value: string): number {
  const length = DIGITS.test(value) ? Number(value) : Number.NaN;
  if (!Number.isSafeInteger(length)) throw ambiguousLength();
  return length;
}

/** True if the connection persists with these options (RFC 9112 §9.3), and by default if they do not say. */
function isKept(options: string, byDefault: boolean): boolean {
  const names = options
    .toLowerCase()
    .split(',')
    .map((name) => name.trim());
  return !names.includes('close') && (byDefault || names.includes('keep-alive'));
}

/**
 * True if the codings end with chunked; false: the body ends with the connection (RFC 9112 §6.3).
 * @throws GatewayError `upstream-protocol` if they have it twice (RFC 9112 §6.1), or one without a name
 */
export function isChunked(codings: string): boolean {
  const names = codings
    .toLowerCase()
    .split(',')
    .map((name) => name.trim());
  const first = names.indexOf('chunked');
  if (first !== names.lastIndexOf('chunked') || names.includes('')) throw ambiguousLength();
  return first !== -1 && first === names.length - 1;
}

/**
 * Checks trailer fields (RFC 9110 §6.5.1). Returns false if they say something about the connection, which is not to be
 * used again then.
 * @throws GatewayError `upstream-protocol` if they say something about the framing
 */
export function areHarmlessTrailers(trailers: RawHeaders): boolean {
  if (FRAMING_FIELDS.some((name) => fieldValue(trailers, name) !== undefined)) {
    throw new GatewayError('upstream-protocol', FRAMING_TRAILER);
  }
  return !CONNECTION_FIELDS.some((name) => fieldValue(trailers, name) !== undefined);
}

const FRAMING_FIELDS = ['content-length', 'transfer-encoding'];
const CONNECTION_FIELDS = ['connection', 'proxy-connection', 'keep-alive', 'upgrade'];

function ambiguousLength(): GatewayError {
  return new GatewayError('upstream-protocol', AMBIGUOUS_LENGTH);
}
