import { GatewayError } from '../base/errors.ts';
import { isFieldValue, joinedValue, type RawHeaders } from '../base/raw-headers.ts';
import { fieldLines, MalformedMessage } from '../http1/fields.ts';
import { contentLength, persists, speaksOfConnection, speaksOfFraming } from '../http1/framing.ts';

/**
 * RFC 9112 §4. Some servers leave out the space before an empty phrase. RTSP, ICY and HTTP/2.0 have lines of this form,
 * and are something else; so is a status below 100.
 */
const STATUS_LINE = /^HTTP\/1\.([01]) ([1-9]\d\d)(?: ([^\r\n]*))?\r\n/;
const STATUS_LINE_START = /^HTTP\/1\.[01] [1-9]\d\d[ \r]/;
const ANY_STATUS_LINE = 'HTTP/1.1 200 ';
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
  readonly length: number | undefined;
  /** Transfer-Encoding, its lines joined; undefined: none. */
  readonly codings: string | undefined;
  /** Seconds after which the upstream closes the connection if it is idle; undefined: it does not say. */
  readonly keepAliveSeconds: number | undefined;
  /** True if the upstream serves further requests on the connection. */
  readonly isPersistent: boolean;
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
  const codings = joinedValue(headers, 'transfer-encoding');
  const length = lengthOf(joinedValue(headers, 'content-length'));
  if (codings !== undefined && length !== undefined) throw ambiguousLength();
  const options = `${joinedValue(headers, 'connection') ?? ''},${joinedValue(headers, 'proxy-connection') ?? ''}`;
  const [, seconds] = KEEP_ALIVE_TIMEOUT.exec(joinedValue(headers, 'keep-alive') ?? '') ?? [];
  return {
    length,
    codings,
    keepAliveSeconds: seconds === undefined ? undefined : Number(seconds),
    // RFC 9112 §6.1: HTTP/1.0 has no Transfer-Encoding, so the end of the body is uncertain.
    isPersistent: persists(options, isHttp11) && (isHttp11 || codings === undefined),
  };
}

function lengthOf(value: string | undefined): number | undefined {
  if (value === undefined) return undefined;
  const length = contentLength(value);
  if (length === undefined) throw ambiguousLength();
  return length;
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
  if (speaksOfFraming(trailers)) throw new GatewayError('upstream-protocol', FRAMING_TRAILER);
  return !speaksOfConnection(trailers);
}

function ambiguousLength(): GatewayError {
  return new GatewayError('upstream-protocol', AMBIGUOUS_LENGTH);
}
