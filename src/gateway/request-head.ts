import { GatewayError } from '../base/errors.ts';
import { METHODS } from '../base/node-http.ts';
import { joinedValue, type RawHeaders } from '../base/raw-headers.ts';
import type { BodyFraming } from '../http1/body-reader.ts';
import { fieldLines, MalformedMessage } from '../http1/fields.ts';
import { contentLength, persists } from '../http1/framing.ts';

/** The methods of HTTP; SOURCE is Icecast's. */
const KNOWN: ReadonlySet<string> = new Set(METHODS.filter((method) => method !== 'SOURCE'));

/**
 * RFC 9112 §3, with one space between the parts: servers differ about others. A target has no byte above 7E
 * (RFC 3986 §2).
 */
const REQUEST_LINE = /^([A-Z-]+) ([\x21-\x7e]+) HTTP\/1\.([01])\r\n/;
const START = /^[A-Z-]{1,20}(?: |$)/;
const START_LENGTH = 21;

const CONTINUE = /(?:^|,)[ \t]*100-continue[ \t]*(?:,|$)/i;

/** The head of a client's request. */
export interface RequestHead {
  readonly method: string;
  /** The request target, byte for byte. */
  readonly target: string;
  readonly httpVersion: '1.0' | '1.1';
  readonly headers: RawHeaders;
  /** 0: the request has no body. */
  readonly body: BodyFraming;
  /** False: no further request may follow on the connection. */
  readonly isPersistent: boolean;
  /** True if the client waits for 100 Continue before it sends its body (RFC 9110 §10.1.1). */
  readonly expectsContinue: boolean;
}

/** True if the bytes from there can be the start of a request line. */
export function isStartOfRequest(input: Buffer, at: number): boolean {
  return START.test(input.toString('latin1', at, at + START_LENGTH));
}

/**
 * Reads a head, from its request line to the end of its last field line. It refuses framing that two servers could read
 * differently, which makes request smuggling possible.
 * @throws MalformedMessage; GatewayError `bad-request`
 */
export function requestHead(text: string): RequestHead {
  const [line = '', method = '', target = '', minor] = REQUEST_LINE.exec(text) ?? [];
  if (!KNOWN.has(method)) throw new MalformedMessage('start-line');
  const headers = fieldLines(text, line.length);
  const httpVersion = minor === '1' ? '1.1' : '1.0';
  const expectation = httpVersion === '1.1' ? joinedValue(headers, 'expect') : undefined;
  return {
    method,
    target,
    httpVersion,
    headers,
    body: bodyFraming(headers, httpVersion),
    isPersistent: isPersistent(joinedValue(headers, 'connection') ?? '', httpVersion, target),
    expectsContinue: expectation !== undefined && CONTINUE.test(expectation),
  };
}

function bodyFraming(headers: RawHeaders, httpVersion: string): BodyFraming {
  const coding = joinedValue(headers, 'transfer-encoding');
  const length = joinedValue(headers, 'content-length');
  if (coding === undefined) return length === undefined ? 0 : lengthOf(length);
  // RFC 9112 §6.1: such framing is faulty.
  if (httpVersion === '1.0') throw badFraming('An HTTP/1.0 request cannot have Transfer-Encoding.');
  if (coding.toLowerCase() !== 'chunked') {
    throw badFraming('The only supported Transfer-Encoding is chunked.');
  }
  if (length !== undefined) throw badFraming('A request cannot have Content-Length and Transfer-Encoding.');
  return 'chunked';
}

function lengthOf(value: string): number {
  const length = contentLength(value);
  if (length === undefined) throw badFraming('Content-Length is not one number (RFC 9110 §8.6).');
  return length;
}

function isPersistent(connection: string, httpVersion: string, target: string): boolean {
  const isHttp11 = httpVersion === '1.1';
  // A proxy does not know whether another proxy in between passed on a Connection that it did not understand (RFC 9112
  // §9.3, appendix C.2.2).
  return persists(connection, isHttp11) && (isHttp11 || target.startsWith('/'));
}

function badFraming(detail: string): GatewayError {
  return new GatewayError('bad-request', detail);
}
