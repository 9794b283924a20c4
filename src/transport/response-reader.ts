import { GatewayError } from '../base/errors.ts';
import type { ProxyErrorType } from '../base/proxy-error-type.ts';
import type { RawHeaders } from '../base/raw-headers.ts';
import {
  areHarmlessTrailers,
  fieldLines,
  framingOf,
  isChunked,
  isStartOfHead,
  notHttp,
  type ResponseHead,
  responseHead,
} from './response-head.ts';

/** The largest head of a response in bytes, its status line included; also the largest trailer section. */
const MAX_HEAD_BYTES = 32 * 1024;
/** Interim responses (1xx) of one exchange, and their bytes altogether. */
const MAX_INTERIM = 64;
const MAX_INTERIM_BYTES = 64 * 1024;
/** The longest line before a chunk in bytes: its size and extensions. */
const MAX_CHUNK_LINE = 4 * 1024;

const SECTION_END = Buffer.from('\r\n\r\n');
const CRLF_LENGTH = 2;
const [LF, CR] = [0x0a, 0x0d];

const CHUNK_SIZE = /^[\da-f]+/i;
/** RFC 9112 §7.1.1, without the white space of older senders. */
const CHUNK_EXTENSIONS =
  /^(?:;[!#$%&'*+.^_`|~\w-]+(?:=(?:[!#$%&'*+.^_`|~\w-]+|"(?:[\t\x20\x21\x23-\x5b\x5d-\x7e\x80-\xff]|\\[\t\x20-\x7e\x80-\xff])*"))?)*$/;

const HEAD_TOO_LARGE = `The head of the response of the upstream is larger than ${MAX_HEAD_BYTES} bytes.`;
const TRAILERS_TOO_LARGE = `The trailers of the response of the upstream are larger than ${MAX_HEAD_BYTES} bytes.`;
const UNASKED_SWITCH = 'The upstream switched protocols (101) without having been asked to.';
const CLOSING_INTERIM = 'The upstream closed the connection with an interim response (RFC 9112 §9.6).';
const TOO_MANY_INTERIM = `The upstream sent more than ${MAX_INTERIM} interim responses, or more than ${MAX_INTERIM_BYTES} bytes of them.`;
const MALFORMED_CHUNK = 'The upstream sent a chunked body that is not valid HTTP/1.1 (RFC 9112 §7.1).';
const TOO_SHORT = 'The response of the upstream is not as long as its Content-Length says.';
const CHUNKS_BREAK_OFF = 'The response of the upstream ends before its last chunk.';

/** Receives the response of one exchange, as it is read. A throw ends the reading. */
export interface ResponseReceiver {
  /** An interim response (1xx), never 100 (Continue); any number of them, before the head. */
  onInformation(status: number, headers: RawHeaders): void;
  /** The head of the final response; once. The reason phrase is Latin-1 text. `isHttp11`: false for HTTP/1.0. */
  onHead(status: number, reason: string, headers: RawHeaders, isHttp11: boolean): void;
  onData(chunk: Buffer): void;
  onEnd(trailers: RawHeaders): void;
}

/**
 * `idle`: no response is due. `head`: the final head has not come. `length`: `#left` bytes of the body are to come.
 * `close`: the body ends with the connection. The others are the parts of a chunked body.
 */
type State = 'idle' | 'head' | 'length' | 'close' | 'chunk-line' | 'chunk' | 'chunk-end' | 'trailers';

/**
 * Reads the responses of one connection, one at a time (RFC 9112). It refuses everything that two programs could read
 * differently, because a client would be given the response to another request.
 */
export class ResponseReader {
  #state: State = 'idle';
  #receiver: ResponseReceiver | undefined;
  #method = '';
  /** The start of a head, line or trailer section that has not come whole. */
  #partial: Buffer | undefined;
  /** Bytes of the body, or of its chunk, that are to come. */
  #left = 0;
  #interim = 0;
  #interimBytes = 0;
  #isPersistent = false;
  #keepAliveSeconds: number | undefined;
  #isHttp10: boolean | undefined;
  #progress = 0;

  /** True if no response is due: `begin` was not called yet, or the response has ended. */
  get isIdle(): boolean {
    return this.#state === 'idle';
  }

  /** True if the head of the final response has been read, and the body has not ended. */
  get isInBody(): boolean {
    return this.#state !== 'idle' && this.#state !== 'head';
  }

  /** True if the connection can carry another exchange after the response that was read last. */
  get isPersistent(): boolean {
    return this.#isPersistent;
  }

  /** Seconds after which the upstream closes the connection if it is idle; undefined: it does not say. */
  get keepAliveSeconds(): number | undefined {
    return this.#keepAliveSeconds;
  }

  /** Returns whether the response whose head was read last is HTTP/1.0; undefined: none was read since the last call. */
  takeIsHttp10(): boolean | undefined {
    const isHttp10 = this.#isHttp10;
    this.#isHttp10 = undefined;
    return isHttp10;
  }

  /** Grows with the final head, and with each piece of a body. Interim responses put no timeout off. */
  get progress(): number {
    return this.#progress;
  }

  /** A request of this method is about to be written: its response goes to the receiver. */
  begin(method: string, receiver: ResponseReceiver): void {
    this.#state = 'head';
    this.#receiver = receiver;
    this.#method = method;
    this.#interim = 0;
    this.#interimBytes = 0;
  }

  /** Passes nothing more on. The connection cannot be used any more. */
  stop(): void {
    this.#state = 'idle';
    this.#receiver = undefined;
    this.#isPersistent = false;
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
    while (at < input.length && this.#state !== 'idle') {
      // Bytes that were searched before need not be searched again.
      const next = this.#step(input, at, at === 0 ? known : at);
      if (next === at) {
        this.#partial = input.subarray(at);
        return;
      }
      at = next;
    }
    // Bytes that follow a response would be taken for the response to the next request: response smuggling.
    if (at < input.length) this.#isPersistent = false;
  }

  /**
   * The upstream ended the connection in order. Returns true if that is the end of the response.
   * @throws GatewayError `upstream-protocol` if the response is shorter than it says; any error of the receiver
   */
  end(): boolean {
    if (this.#state === 'close') {
      this.#finish([]);
      return true;
    }
    if (this.isInBody && !this.#isPersistent)
      throw refusal(this.#state === 'length' ? TOO_SHORT : CHUNKS_BREAK_OFF, 'http_response_incomplete');
    return false;
  }

  /** Reads the next part and returns where it ends; where it begins: it has not come whole. */
  #step(input: Buffer, at: number, known: number): number {
    switch (this.#state) {
      case 'head':
        return this.#readHead(input, at, known);
      case 'chunk-line':
        return this.#readChunkLine(input, at);
      case 'chunk-end':
        return this.#readChunkEnd(input, at);
      case 'trailers':
        return this.#readTrailers(input, at, known);
      default:
        return this.#readBody(input, at);
    }
  }

  #readHead(input: Buffer, at: number, known: number): number {
    const end = sectionEnd(input, at, known, headTooLarge);
    if (end === -1) {
      if (!isStartOfHead(input.toString('latin1', at, at + 16))) throw notHttp();
      return at;
    }
    const head = responseHead(input.toString('latin1', at, end - CRLF_LENGTH));
    if (head.status < 200) this.#takeInterim(head, end - at);
    else this.#takeHead(head);
    return end;
  }

  #takeInterim(head: ResponseHead, size: number): void {
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

  #takeHead(head: ResponseHead): void {
    this.#progress += 1;
    const { length, codings, isPersistent, keepAliveSeconds } = framingOf(head);
    const { status, reason, headers, isHttp11 } = head;
    this.#isPersistent = isPersistent;
    this.#keepAliveSeconds = keepAliveSeconds;
    this.#isHttp10 = !isHttp11;
    const chunked = codings !== undefined && isChunked(codings);
    // RFC 9112 §6.3: the first rule that applies.
    if (this.#method === 'HEAD') {
      this.#enter('length', 0);
    } else if (status === 204 || status === 304) {
      this.#enter('length', 0);
      // One that announces a body may have it, and it would pass for the next response.
      if (codings !== undefined || (length ?? 0) > 0) this.#isPersistent = false;
    } else if (chunked) {
      this.#enter('chunk-line', 0);
    } else if (length !== undefined) {
      this.#enter('length', length);
    } else {
      this.#enter('close', Number.POSITIVE_INFINITY);
      this.#isPersistent = false;
    }
    this.#receiver?.onHead(status, reason, headers, isHttp11);
    if (this.#state === 'length' && this.#left === 0) this.#finish([]);
  }

  #enter(state: State, left: number): void {
    this.#state = state;
    this.#left = left;
  }

  #readBody(input: Buffer, at: number): number {
    const end = Math.min(input.length, at + this.#left);
    this.#left -= end - at;
    this.#progress += 1;
    this.#receiver?.onData(input.subarray(at, end));
    if (this.#left === 0) {
      if (this.#state === 'length') this.#finish([]);
      else if (this.#state === 'chunk') this.#state = 'chunk-end';
    }
    return end;
  }

  #readChunkLine(input: Buffer, at: number): number {
    const end = input.indexOf(LF, at);
    if ((end === -1 ? input.length : end) - at > MAX_CHUNK_LINE) throw malformedChunk();
    if (end === -1) return at;
    if (input[end - 1] !== CR) throw malformedChunk();
    const size = chunkSize(input.toString('latin1', at, end - 1));
    this.#enter(size === 0 ? 'trailers' : 'chunk', size);
    return end + 1;
  }

  #readChunkEnd(input: Buffer, at: number): number {
    if (input[at] !== CR || (input[at + 1] ?? LF) !== LF) throw malformedChunk();
    if (input.length < at + CRLF_LENGTH) return at;
    this.#state = 'chunk-line';
    return at + CRLF_LENGTH;
  }

  #readTrailers(input: Buffer, at: number, known: number): number {
    if (input[at] === CR) {
      if ((input[at + 1] ?? LF) !== LF) throw malformedChunk();
      if (input.length < at + CRLF_LENGTH) return at;
      this.#finish([]);
      return at + CRLF_LENGTH;
    }
    const end = sectionEnd(input, at, known, trailersTooLarge);
    if (end === -1) return at;
    const trailers = fieldLines(input.toString('latin1', at, end - CRLF_LENGTH), 0);
    if (!areHarmlessTrailers(trailers)) this.#isPersistent = false;
    this.#finish(trailers);
    return end;
  }

  #finish(trailers: RawHeaders): void {
    const receiver = this.#receiver;
    this.#state = 'idle';
    this.#receiver = undefined;
    receiver?.onEnd(trailers);
  }
}

/**
 * The place behind the empty line that ends a head or trailer section; -1: it has not come.
 * @param known up to where the bytes were searched before
 */
function sectionEnd(input: Buffer, at: number, known: number, tooLarge: () => GatewayError): number {
  const found = input.indexOf(SECTION_END, Math.max(at, known - SECTION_END.length + 1));
  const end = found === -1 ? input.length : found + SECTION_END.length;
  if (end - at > MAX_HEAD_BYTES) throw tooLarge();
  if (found !== -1) return end;
  // A line that ends without CR may be all that comes: waiting for the rest would be in vain.
  for (let lf = input.indexOf(LF, known); lf !== -1; lf = input.indexOf(LF, lf + 1)) {
    if (input[lf - 1] !== CR) throw notHttp();
  }
  return -1;
}

function chunkSize(line: string): number {
  const [digits = ''] = CHUNK_SIZE.exec(line) ?? [];
  const size = Number.parseInt(digits, 16);
  const isValid = Number.isSafeInteger(size) && CHUNK_EXTENSIONS.test(line.slice(digits.length));
  if (!isValid) throw malformedChunk();
  return size;
}

function malformedChunk(): GatewayError {
  return refusal(MALFORMED_CHUNK, 'http_response_transfer_coding');
}

function headTooLarge(): GatewayError {
  return refusal(HEAD_TOO_LARGE, 'http_response_header_section_size');
}

function trailersTooLarge(): GatewayError {
  return refusal(TRAILERS_TOO_LARGE, 'http_response_trailer_section_size');
}

function refusal(detail: string, proxyError?: ProxyErrorType): GatewayError {
  return new GatewayError('upstream-protocol', detail, undefined, { proxyError });
}
