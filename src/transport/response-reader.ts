import type { ProxyErrorType } from '../base/error-kind.ts';
import { GatewayError } from '../base/errors.ts';
import { isFieldValue, joinedValue, NO_FIELDS, type RawHeaders } from '../base/raw-headers.ts';
import { type ResponseSource, UpstreamResponse } from '../handshake/response.ts';
import { type BodyFraming, BodyReader, type BodyReceiver } from '../http1/body-reader.ts';
import {
  CRLF_LENGTH,
  contentLength,
  fieldLines,
  hasConnectionField,
  hasFramingField,
  MalformedMessage,
  type MessagePart,
  persists,
  sectionEnd,
} from '../http1/fields.ts';

/**
 * RFC 9112 §4. Some servers leave out the space before an empty phrase. RTSP, ICY and HTTP/2.0 have lines of this form,
 * and are something else; so is a status below 100.
 */
const STATUS_LINE = /^HTTP\/1\.[01] [1-9]\d\d(?: [^\r\n]*)?\r\n/;
/** Where minor version, status and phrase are in it. */
const [MINOR, STATUS, PHRASE] = ['HTTP/1.'.length, 'HTTP/1.1 '.length, 'HTTP/1.1 200 '.length];
const STATUS_LINE_START = /^HTTP\/1\.[01] [1-9]\d\d[ \r]/;
const ANY_STATUS_LINE = 'HTTP/1.1 200 ';
const KEEP_ALIVE_TIMEOUT = /timeout=(\d+)/;

const FRAMING_TRAILER =
  'The upstream sent Content-Length or Transfer-Encoding in the trailers of a response (RFC 9110 §6.5.1).';
const AMBIGUOUS_LENGTH =
  'The upstream sent a response whose length can be read in two ways: Content-Length is repeated, is not a number, or comes with Transfer-Encoding, or Transfer-Encoding is malformed (RFC 9112 §6.3).';

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
 * Reads a head, from its status line to the end of its last field line. `source`: where its body comes from.
 * @throws MalformedMessage
 */
function responseOf(text: string, source: ResponseSource): UpstreamResponse {
  if (!STATUS_LINE.test(text)) throw new MalformedMessage('start-line');
  const lineEnd = text.indexOf('\r');
  const phrase = text.slice(PHRASE, lineEnd);
  return new UpstreamResponse(
    Number(text.slice(STATUS, STATUS + 3)),
    // No client could be sent control characters.
    isFieldValue(phrase) ? phrase : '',
    fieldLines(text, lineEnd + CRLF_LENGTH),
    text[MINOR] === '1',
    source,
    text.slice(lineEnd + CRLF_LENGTH),
  );
}

/** True if the text can be the start of a head. */
function isStartOfHead(text: string): boolean {
  return STATUS_LINE_START.test(text + ANY_STATUS_LINE.slice(text.length));
}

/**
 * Returns what a head says about the body and the connection.
 * @throws GatewayError `upstream-protocol` if it says two things
 */
export function framingOf({ headers, isHttp11 }: Pick<UpstreamResponse, 'headers' | 'isHttp11'>): Framing {
  const codings = joinedValue(headers, 'transfer-encoding');
  const lengths = joinedValue(headers, 'content-length');
  const length = lengths === undefined ? undefined : contentLength(lengths);
  if (lengths !== undefined && (length === undefined || codings !== undefined)) throw ambiguousLength();
  const keepAlive = joinedValue(headers, 'keep-alive');
  const seconds = keepAlive === undefined ? undefined : KEEP_ALIVE_TIMEOUT.exec(keepAlive)?.[1];
  const options = joinedValue(headers, 'connection') ?? '';
  // Some servers say it there.
  const ofProxy = joinedValue(headers, 'proxy-connection');
  return {
    length,
    codings,
    keepAliveSeconds: seconds === undefined ? undefined : Number(seconds),
    // RFC 9112 §6.1: HTTP/1.0 has no Transfer-Encoding, so the end of the body is uncertain.
    isPersistent:
      persists(ofProxy === undefined ? options : `${options},${ofProxy}`, isHttp11) &&
      (isHttp11 || codings === undefined),
  };
}

/**
 * True if the codings end with chunked; false: the body ends with the connection (RFC 9112 §6.3).
 * @throws GatewayError `upstream-protocol` if they have it twice (RFC 9112 §6.1), or one without a name
 */
function isChunked(codings: string): boolean {
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
function checkTrailers(trailers: RawHeaders): boolean {
  if (hasFramingField(trailers)) throw new GatewayError('upstream-protocol', FRAMING_TRAILER);
  return !hasConnectionField(trailers);
}

function ambiguousLength(): GatewayError {
  return new GatewayError('upstream-protocol', AMBIGUOUS_LENGTH);
}

/** The largest head of a response in bytes, its status line included; also the largest trailer section. */
const MAX_HEAD_BYTES = 32 * 1024;
/** Interim responses (1xx) of one exchange, and their bytes altogether. */
const MAX_INTERIM = 64;
const MAX_INTERIM_BYTES = 64 * 1024;

const NOT_HTTP = 'The response of the upstream is not HTTP/1.1 or HTTP/1.0.';
const MALFORMED: Readonly<Record<MessagePart, readonly [detail: string, proxyError?: ProxyErrorType]>> = {
  'start-line': [NOT_HTTP],
  'line-end': ['The response of the upstream is not HTTP/1.1 or HTTP/1.0: a line ends without CR.'],
  field: ['The upstream sent a header or trailer line that is not valid HTTP/1.1 (RFC 9112 §5).'],
  'head-size': [
    `The head of the response of the upstream is larger than ${MAX_HEAD_BYTES} bytes.`,
    'http_response_header_section_size',
  ],
  chunk: [
    'The upstream sent a chunked body that is not valid HTTP/1.1 (RFC 9112 §7.1).',
    'http_response_transfer_coding',
  ],
  'chunk-framing': [
    'The upstream sent chunks with far more framing (extensions, zeros) than they need.',
    'http_response_transfer_coding',
  ],
  'trailers-size': [
    `The trailers of the response of the upstream are larger than ${MAX_HEAD_BYTES} bytes.`,
    'http_response_trailer_section_size',
  ],
};
const UNASKED_SWITCH = 'The upstream switched protocols (101) without having been asked to.';
const CLOSING_INTERIM = 'The upstream closed the connection with an interim response (RFC 9112 §9.6).';
const TOO_MANY_INTERIM = `The upstream sent more than ${MAX_INTERIM} interim responses, or more than ${MAX_INTERIM_BYTES} bytes of them.`;
const TOO_SHORT = 'The response of the upstream is not as long as its Content-Length says.';
const CHUNKS_BREAK_OFF = 'The response of the upstream ends before its last chunk.';

/** Receives the response of one exchange, as it is read. A throw ends the reading. */
export interface ResponseReceiver {
  /** An interim response (1xx), never 100 (Continue); any number of them, before the head. */
  onInformation(status: number, headers: RawHeaders): void;
  /** The head of the final response; once. Its body follows. */
  onHead(response: UpstreamResponse): void;
}

/**
 * Reads the responses of one connection, one at a time (RFC 9112). It refuses everything that two programs could read
 * differently, because a client would be given the response to another request.
 */
export class ResponseReader implements BodyReceiver {
  readonly #source: ResponseSource;
  // Only the reader changes these.
  /** True if no response is due: `begin` was not called yet, or the response has ended. */
  isIdle = true;
  /** True if the head of the final response has been read, and the body has not ended. */
  isInBody = false;
  readonly #body = new BodyReader(MAX_HEAD_BYTES);
  #receiver: ResponseReceiver | undefined;
  #response: UpstreamResponse | undefined;
  #method = '';
  /** The start of a head, line or trailer section that has not come whole. */
  #partial: Buffer | undefined;
  #interim = 0;
  #interimBytes = 0;
  /** True if the connection can carry another exchange after the response that was read last. */
  isPersistent = false;
  /** Seconds after which the upstream closes the connection if it is idle; undefined: it does not say. */
  keepAliveSeconds: number | undefined;
  /** True if the response to the last request is HTTP/1.0; undefined: its head has not come. */
  isHttp10: boolean | undefined;
  /** True if what came first after the last request is no response: the rest of an earlier one, on a kept connection. */
  isForeign = false;
  /** Grows with the final head, and with each piece of a body. Interim responses put no timeout off. */
  progress = 0;

  /** `source`: the connection. */
  constructor(source: ResponseSource) {
    this.#source = source;
  }

  /** A request of this method is about to be written: its response goes to the receiver. */
  begin(method: string, receiver: ResponseReceiver): void {
    this.isIdle = false;
    this.isInBody = false;
    this.isHttp10 = undefined;
    this.#receiver = receiver;
    this.#method = method;
    this.#interim = 0;
    this.#interimBytes = 0;
  }

  /** Passes nothing more on. The connection cannot be used any more. */
  stop(): void {
    this.isIdle = true;
    this.isInBody = false;
    this.#receiver = undefined;
    this.#response = undefined;
    this.isPersistent = false;
    this.#body.stop();
  }

  /**
   * Reads the next bytes.
   * @throws GatewayError `upstream-protocol`; any error that the receiver throws
   */
  read(bytes: Buffer): void {
    const known = this.#partial?.length ?? 0;
    const input = this.#partial === undefined ? bytes : Buffer.concat([this.#partial, bytes]);
    this.#partial = undefined;
    let at = 0;
    try {
      while (at < input.length && !this.isIdle) {
        // Bytes that were searched before need not be searched again.
        const searched = at === 0 ? known : at;
        const next = this.isInBody
          ? this.#body.read(input, at, searched, this)
          : this.#readHead(input, at, searched);
        if (next === at) {
          this.#partial = input.subarray(at);
          return;
        }
        at = next;
      }
    } catch (error) {
      if (!(error instanceof MalformedMessage)) throw error;
      this.isForeign = this.#response === undefined && this.#interim === 0;
      const [detail, proxyError] = MALFORMED[error.part];
      throw refusal(detail, proxyError);
    }
    // Bytes that follow a response would be taken for the response to the next request: response smuggling.
    if (at < input.length) this.isPersistent = false;
  }

  /**
   * The upstream ended the connection in order. Returns true if that is the end of the response.
   * @throws GatewayError `upstream-protocol` if the response is shorter than it says; any error of the receiver
   */
  end(): boolean {
    if (this.#body.endsWithConnection) {
      this.#body.stop();
      this.onEnd(NO_FIELDS);
      return true;
    }
    if (this.isInBody && !this.isPersistent)
      throw refusal(this.#body.isChunked ? CHUNKS_BREAK_OFF : TOO_SHORT, 'http_response_incomplete');
    return false;
  }

  /** Returns where the head ends; where it begins: it has not come whole. */
  #readHead(input: Buffer, at: number, known: number): number {
    const end = sectionEnd(input, at, known, MAX_HEAD_BYTES, 'head-size');
    if (end === -1) {
      if (!isStartOfHead(input.toString('latin1', at, at + 16))) throw new MalformedMessage('start-line');
      return at;
    }
    const response = responseOf(input.toString('latin1', at, end - CRLF_LENGTH), this.#source);
    if (response.status < 200) this.#takeInterim(response, end - at);
    else this.#takeHead(response);
    return end;
  }

  #takeInterim(head: UpstreamResponse, size: number): void {
    if (head.status === 101) throw refusal(UNASKED_SWITCH);
    this.#interim += 1;
    this.#interimBytes += size;
    if (this.#interim > MAX_INTERIM || this.#interimBytes > MAX_INTERIM_BYTES) {
      throw refusal(TOO_MANY_INTERIM);
    }
    // The gateway answers Expect: 100-continue itself, so the client waits for no other 100.
    if (head.status === 100) return;
    // Some programs read nothing after a response that closes the connection (RFC 9112 §9.6).
    if (!framingOf(head).isPersistent) throw refusal(CLOSING_INTERIM);
    this.#receiver?.onInformation(head.status, head.headers);
  }

  #takeHead(response: UpstreamResponse): void {
    this.progress += 1;
    const { length, codings, isPersistent, keepAliveSeconds } = framingOf(response);
    const { status, isHttp11 } = response;
    this.isPersistent = isPersistent;
    this.keepAliveSeconds = keepAliveSeconds;
    this.isHttp10 = !isHttp11;
    const chunked = codings !== undefined && isChunked(codings);
    // RFC 9112 §6.3: the first rule that applies.
    let body: BodyFraming = length ?? Number.POSITIVE_INFINITY;
    if (this.#method === 'HEAD') {
      body = 0;
    } else if (status === 204 || status === 304) {
      body = 0;
      // One that announces a body may have it, and it would pass for the next response.
      if (codings !== undefined || (length ?? 0) > 0) this.isPersistent = false;
    } else if (chunked) {
      body = 'chunked';
    } else if (length === undefined) {
      this.isPersistent = false;
    }
    this.isInBody = true;
    if (body !== 0) this.#body.begin(body);
    this.#response = response;
    this.#receiver?.onHead(response);
    if (body === 0 && this.isInBody) this.onEnd(NO_FIELDS);
  }

  /** For the reader of the body. */
  onData(piece: Buffer): void {
    this.progress += 1;
    this.#response?.push(piece);
  }

  /** For the reader of the body. */
  onEnd(trailers: RawHeaders): void {
    if (trailers.length > 0 && !checkTrailers(trailers)) this.isPersistent = false;
    const response = this.#response;
    this.isIdle = true;
    this.isInBody = false;
    this.#receiver = undefined;
    this.#response = undefined;
    response?.end(trailers);
  }
}

function refusal(detail: string, proxyError?: ProxyErrorType): GatewayError {
  return new GatewayError('upstream-protocol', detail, undefined, { proxyError });
}
