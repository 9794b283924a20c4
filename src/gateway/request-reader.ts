import { GatewayError } from '../base/errors.ts';
import { METHODS } from '../base/node-http.ts';
import { joinedValue, type RawHeaders } from '../base/raw-headers.ts';
import { type BodyFraming, BodyReader, type BodyReceiver } from '../http1/body-reader.ts';
import {
  CR,
  CRLF_LENGTH,
  contentLength,
  fieldLines,
  hasConnectionField,
  hasFramingField,
  LF,
  MalformedMessage,
  type MessagePart,
  persists,
  sectionEnd,
} from '../http1/fields.ts';

/** The methods of HTTP; SOURCE is Icecast's. */
const KNOWN: ReadonlySet<string> = new Set(METHODS.filter((method) => method !== 'SOURCE'));

/**
 * RFC 9112 §3, with one space between the parts: servers differ about others. A target has no byte above 7E
 * (RFC 3986 §2).
 */
const REQUEST_LINE = /^[A-Z-]+ [\x21-\x7e]+ HTTP\/1\.[01]\r\n/;
const VERSION_LENGTH = ' HTTP/1.1'.length;
const START = /^[A-Z-]{1,20}(?: |$)/;
const LONG_METHOD = /^[A-Z-]{21}/;
const START_LENGTH = 21;

/** Codings without parameters, and chunked as the last one alone. */
const OTHER_CODINGS = /^(?:(?!chunked[ \t]*,)[!#$%&'*+.^_`|~\w-]+[ \t]*,[ \t]*)+chunked$/i;

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
  /** The head is whole, but its request is refused with this, and no byte behind it is read. */
  readonly refusal: GatewayError | undefined;
}

/**
 * Refuses bytes that cannot be the start of a request line.
 * @throws MalformedMessage; GatewayError `not-implemented`
 */
function checkStart(input: Buffer, at: number): void {
  const start = input.toString('latin1', at, at + START_LENGTH);
  if (!START.test(start)) throw badRequestLine(start);
}

/** A long method gets the same response whether its head has come whole or not. */
function badRequestLine(text: string): GatewayError | MalformedMessage {
  return LONG_METHOD.test(text) ? unknownMethod() : new MalformedMessage('start-line');
}

function unknownMethod(): GatewayError {
  return new GatewayError('not-implemented', 'The gateway does not know the method of the request.');
}

/**
 * Reads a head, from its request line to the end of its last field line. It refuses framing that two servers could read
 * differently, which makes request smuggling possible.
 * @throws MalformedMessage; GatewayError `not-implemented` for a method that is too long to be read
 */
export function requestHead(text: string): RequestHead {
  if (!REQUEST_LINE.test(text)) throw badRequestLine(text);
  const methodEnd = text.indexOf(' ');
  if (methodEnd >= START_LENGTH) throw unknownMethod();
  const lineEnd = text.indexOf('\r', methodEnd);
  const method = text.slice(0, methodEnd);
  const target = text.slice(methodEnd + 1, lineEnd - VERSION_LENGTH);
  const headers = fieldLines(text, lineEnd + CRLF_LENGTH);
  const isHttp11 = text[lineEnd - 1] === '1';
  const httpVersion = isHttp11 ? '1.1' : '1.0';
  // Malformed lines count first: they are seen before the head has come whole.
  const framing = KNOWN.has(method) ? bodyFraming(headers, httpVersion) : unknownMethod();
  const refusal = framing instanceof GatewayError ? framing : undefined;
  const expectation = isHttp11 ? joinedValue(headers, 'expect') : undefined;
  return {
    method,
    target,
    httpVersion,
    headers,
    body: framing instanceof GatewayError ? 0 : framing,
    // A proxy does not know whether another proxy in between passed on a Connection that it did not understand (RFC 9112
    // §9.3, appendix C.2.2).
    isPersistent:
      refusal === undefined &&
      persists(joinedValue(headers, 'connection') ?? '', isHttp11) &&
      (isHttp11 || target.startsWith('/')),
    expectsContinue: expectation !== undefined && CONTINUE.test(expectation),
    refusal,
  };
}

/**
 * Refuses a request line that no reader of requests takes, for a request that is not sent.
 * @throws GatewayError `bad-request`, `target-too-long`
 */
export function checkRequestLine(method: string, target: string, mostHead: number): void {
  const line = `${method} ${target} HTTP/1.1\r\n`;
  if (line.length - 1 > mostHead) throw targetTooLong(mostHead);
  const [read] = REQUEST_LINE.exec(line) ?? [];
  // A line end in the target ends the line before.
  if (read !== line) throw new GatewayError('bad-request', MALFORMED['start-line']);
}

/** Returns the framing of a body, or the refusal if two servers could read its end differently. */
export function bodyFraming(headers: RawHeaders, httpVersion: string): BodyFraming | GatewayError {
  const coding = joinedValue(headers, 'transfer-encoding');
  const length = joinedValue(headers, 'content-length');
  if (coding === undefined) return length === undefined ? 0 : lengthOf(length);
  // RFC 9112 §6.1: such framing is faulty.
  if (httpVersion === '1.0') return badFraming('An HTTP/1.0 request cannot have Transfer-Encoding.');
  if (coding.toLowerCase() !== 'chunked') {
    const detail = 'The only supported Transfer-Encoding is chunked.';
    // RFC 9112 §6.1; without chunked at the end, or with chunked twice, the framing is faulty (§6.3).
    return OTHER_CODINGS.test(coding) ? new GatewayError('not-implemented', detail) : badFraming(detail);
  }
  if (length !== undefined) return badFraming('A request cannot have Content-Length and Transfer-Encoding.');
  return 'chunked';
}

function lengthOf(value: string): number | GatewayError {
  return contentLength(value) ?? badFraming('Content-Length is not one number (RFC 9110 §8.6).');
}

function badFraming(detail: string): GatewayError {
  return new GatewayError('bad-request', detail);
}

/** The parts whose error does not depend on the configuration. */
const MALFORMED: Readonly<Record<Exclude<MessagePart, 'head-size' | 'trailers-size'>, string>> = {
  'start-line': 'The request line is not that of HTTP/1.1 or HTTP/1.0.',
  'line-end': 'The request is not HTTP/1.1 or HTTP/1.0: a line ends without CR.',
  field: 'A header or trailer line of the request is not valid HTTP/1.1 (RFC 9112 §5).',
  chunk: 'The chunks of the body are not valid HTTP/1.1 (RFC 9112 §7.1).',
  'chunk-framing': 'The chunks of the body have far more framing (extensions, zeros) than they need.',
};

/** Receives the requests of a connection as they are read. */
export interface RequestReceiver {
  onHead(head: RequestHead): void;
  /** See `BodyReceiver`. */
  onData(piece: Buffer, framing: number): void;
  /** The request has a body, and it has been read whole. */
  onEnd(): void;
}

/**
 * Reads the requests of one connection, one at a time (RFC 9112). It refuses everything that two servers could read
 * differently, because one of them would take bytes of a client for another request.
 */
export class RequestReader implements BodyReceiver {
  readonly #mostHead: number;
  readonly #receiver: RequestReceiver;
  readonly #body: BodyReader;
  /** The start of a head, line or trailer section that has not come whole. */
  #partial: Buffer | undefined;

  /** @param mostHead the largest head in bytes, request line included; also the largest trailer section */
  constructor(mostHead: number, receiver: RequestReceiver) {
    this.#mostHead = mostHead;
    this.#receiver = receiver;
    this.#body = new BodyReader(mostHead);
  }

  /** True if no byte of a request has come since the last one ended, but for empty lines. */
  get isBetween(): boolean {
    const partial = this.#partial;
    return this.#body.isEnded && (partial === undefined || isHalfEmptyLine(partial, 0));
  }

  /**
   * Reads the bytes from there to the end of the request; returns where that is, or the end of the bytes.
   * @throws GatewayError if the request is malformed; nothing more may be read then
   */
  read(bytes: Buffer, from: number): number {
    try {
      const partial = this.#partial;
      if (partial === undefined) return this.#read(bytes, from, from);
      this.#partial = undefined;
      const input = Buffer.concat([partial, from === 0 ? bytes : bytes.subarray(from)]);
      return from - partial.length + this.#read(input, 0, partial.length);
    } catch (error) {
      throw error instanceof MalformedMessage ? this.#refusal(error.part) : error;
    }
  }

  /** @param known up to where the bytes were searched before */
  #read(input: Buffer, from: number, known: number): number {
    let at = from;
    // Empty lines before a request are ignored (RFC 9112 §2.2).
    if (this.#body.isEnded) while (input[at] === CR && input[at + 1] === LF) at += CRLF_LENGTH;
    while (at < input.length) {
      const searched = Math.max(at, known);
      const next = this.#body.isEnded
        ? this.#readHead(input, at, searched)
        : this.#body.read(input, at, searched, this);
      if (next === at) {
        this.#partial = at === 0 ? input : input.subarray(at);
        return input.length;
      }
      at = next;
      if (this.#body.isEnded) return at;
    }
    return at;
  }

  #readHead(input: Buffer, at: number, known: number): number {
    let end: number;
    try {
      end = sectionEnd(input, at, known, this.#mostHead, 'head-size');
    } catch (error) {
      const lineEnd = input.indexOf(LF, at);
      const isLong = (lineEnd === -1 ? input.length : lineEnd) - at > this.#mostHead;
      throw isLong ? targetTooLong(this.#mostHead) : error;
    }
    if (end === -1) {
      if (!isHalfEmptyLine(input, at)) checkStart(input, at);
      return at;
    }
    const head = requestHead(input.toString('latin1', at, end - CRLF_LENGTH));
    if (head.body !== 0) this.#body.begin(head.body);
    this.#receiver.onHead(head);
    return end;
  }

  /** For the reader of the body. */
  onData(piece: Buffer, framing: number): void {
    this.#receiver.onData(piece, framing);
  }

  /** For the reader of the body. Trailers are not sent on. */
  onEnd(trailers: RawHeaders): void {
    // RFC 9110 §6.5.1 forbids them there; some programs obey them.
    if (hasFramingField(trailers) || hasConnectionField(trailers)) {
      throw new GatewayError(
        'bad-request',
        'The trailers of the request hold a field of its framing or connection.',
      );
    }
    this.#receiver.onEnd();
  }

  #refusal(part: MessagePart): GatewayError {
    if (part !== 'head-size' && part !== 'trailers-size') {
      return new GatewayError('bad-request', MALFORMED[part]);
    }
    const what = part === 'head-size' ? 'request line and headers' : 'trailers';
    return new GatewayError('headers-too-large', `The ${what} are larger than ${this.#mostHead} bytes.`);
  }
}

function targetTooLong(mostHead: number): GatewayError {
  return new GatewayError('target-too-long', `The request line alone is larger than ${mostHead} bytes.`);
}

function isHalfEmptyLine(input: Buffer, at: number): boolean {
  return input[at] === CR && at + 1 === input.length;
}
