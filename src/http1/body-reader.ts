import type { RawHeaders } from '../base/raw-headers.ts';
import { CR, CRLF_LENGTH, fieldLines, LF, MalformedMessage, sectionEnd } from './fields.ts';

/** The longest line before a chunk in bytes: its size and extensions. */
const MAX_CHUNK_LINE = 4 * 1024;

const CHUNK_SIZE = /^[\da-f]+/i;
/** RFC 9112 §7.1.1, without the white space of older senders. */
const CHUNK_EXTENSIONS =
  /^(?:;[!#$%&'*+.^_`|~\w-]+(?:=(?:[!#$%&'*+.^_`|~\w-]+|"(?:[\t\x20\x21\x23-\x5b\x5d-\x7e\x80-\xff]|\\[\t\x20-\x7e\x80-\xff])*"))?)*$/;

/** The length of a body in bytes; infinite: it ends with the connection. */
export type BodyFraming = number | 'chunked';

/** Receives a body as it is read. A throw ends the reading. */
export interface BodyReceiver {
  onData(chunk: Buffer): void;
  onEnd(trailers: RawHeaders): void;
}

/** `bytes`: `#left` bytes are to come. The others are the parts of a chunked body. */
type Part = 'ended' | 'bytes' | 'chunk-line' | 'chunk' | 'chunk-end' | 'trailers';

/** Reads the bodies of the messages of one connection, one at a time (RFC 9112 §6, §7). */
export class BodyReader {
  readonly #mostTrailers: number;
  #part: Part = 'ended';
  /** Bytes of the body, or of its chunk, that are to come. */
  #left = 0;

  /** @param mostTrailers the largest trailer section in bytes */
  constructor(mostTrailers: number) {
    this.#mostTrailers = mostTrailers;
  }

  /** True before the first body, and when the last one has been read whole. */
  get isEnded(): boolean {
    return this.#part === 'ended';
  }

  /** True if the body ends with the connection. */
  get endsWithConnection(): boolean {
    return this.#part === 'bytes' && this.#left === Number.POSITIVE_INFINITY;
  }

  get isChunked(): boolean {
    return this.#part !== 'ended' && this.#part !== 'bytes';
  }

  /** Begins the next body, which is not empty. */
  begin(framing: BodyFraming): void {
    this.#part = framing === 'chunked' ? 'chunk-line' : 'bytes';
    this.#left = framing === 'chunked' ? 0 : framing;
  }

  /** Expects no further bytes of the body. */
  stop(): void {
    this.#part = 'ended';
  }

  /**
   * Reads the next part and returns where it ends; where it begins: it has not come whole.
   * @param known up to where the bytes were searched before
   * @throws MalformedMessage; any error of the receiver
   */
  read(input: Buffer, at: number, known: number, receiver: BodyReceiver): number {
    switch (this.#part) {
      case 'chunk-line':
        return this.#readChunkLine(input, at);
      case 'chunk-end':
        return this.#readChunkEnd(input, at);
      case 'trailers':
        return this.#readTrailers(input, at, known, receiver);
      default:
        return this.#readBytes(input, at, receiver);
    }
  }

  #readBytes(input: Buffer, at: number, receiver: BodyReceiver): number {
    const end = Math.min(input.length, at + this.#left);
    this.#left -= end - at;
    receiver.onData(at === 0 && end === input.length ? input : input.subarray(at, end));
    if (this.#left > 0) return end;
    if (this.#part === 'bytes') this.#finish([], receiver);
    else if (this.#part === 'chunk') this.#part = 'chunk-end';
    return end;
  }

  #readChunkLine(input: Buffer, at: number): number {
    const end = input.indexOf(LF, at);
    if ((end === -1 ? input.length : end) - at > MAX_CHUNK_LINE) throw new MalformedMessage('chunk');
    if (end === -1) return at;
    if (input[end - 1] !== CR) throw new MalformedMessage('chunk');
    this.#left = chunkSize(input.toString('latin1', at, end - 1));
    this.#part = this.#left === 0 ? 'trailers' : 'chunk';
    return end + 1;
  }

  #readChunkEnd(input: Buffer, at: number): number {
    if (input[at] !== CR || (input[at + 1] ?? LF) !== LF) throw new MalformedMessage('chunk');
    if (input.length < at + CRLF_LENGTH) return at;
    this.#part = 'chunk-line';
    return at + CRLF_LENGTH;
  }

  #readTrailers(input: Buffer, at: number, known: number, receiver: BodyReceiver): number {
    if (input[at] === CR) {
      if ((input[at + 1] ?? LF) !== LF) throw new MalformedMessage('chunk');
      if (input.length < at + CRLF_LENGTH) return at;
      this.#finish([], receiver);
      return at + CRLF_LENGTH;
    }
    const end = sectionEnd(input, at, known, this.#mostTrailers, 'trailers-size');
    if (end === -1) return at;
    this.#finish(fieldLines(input.toString('latin1', at, end - CRLF_LENGTH), 0), receiver);
    return end;
  }

  #finish(trailers: RawHeaders, receiver: BodyReceiver): void {
    this.#part = 'ended';
    receiver.onEnd(trailers);
  }
}

function chunkSize(line: string): number {
  const [digits = ''] = CHUNK_SIZE.exec(line) ?? [];
  const size = Number.parseInt(digits, 16);
  const isValid = Number.isSafeInteger(size) && CHUNK_EXTENSIONS.test(line.slice(digits.length));
  if (!isValid) throw new MalformedMessage('chunk');
  return size;
}
