import { NO_FIELDS, type RawHeaders } from '../base/raw-headers.ts';
import { CR, CRLF_LENGTH, fieldLines, LF, MalformedMessage, sectionEnd } from './fields.ts';

/** Memory of each piece of a body beside its bytes; a body that comes byte by byte takes a hundred times its size. */
export const PIECE_OVERHEAD = 512;

/** Maximum number of pieces of a body that wait for the receiver to read, however small they are. */
export const MAX_PIECES = 256;

/** The longest line before a chunk in bytes: its size and extensions. */
const MAX_CHUNK_LINE = 4 * 1024;

/** Bytes of framing that a chunk may have whatever its size, and the bytes that a body may have beyond them. */
const FRAMING_PER_CHUNK = 16;
const MAX_EXCESS_FRAMING = 16 * 1024;
/** Above this many bytes, a piece that wastes more than its own size of its buffer is copied. */
const MAX_WASTE = 1024;

const HEX_DIGITS: ReadonlyMap<number, number> = new Map(
  Array.from('0123456789abcdefABCDEF', (digit) => [digit.charCodeAt(0), Number.parseInt(digit, 16)]),
);
/** RFC 9112 §7.1.1, without the white space of older senders. */
const CHUNK_EXTENSIONS =
  /^(?:;[!#$%&'*+.^_`|~\w-]+(?:=(?:[!#$%&'*+.^_`|~\w-]+|"(?:[\t\x20\x21\x23-\x5b\x5d-\x7e\x80-\xff]|\\[\t\x20-\x7e\x80-\xff])*"))?)*$/;

/** The length of a body in bytes; infinite: it ends with the connection. */
export type BodyFraming = number | 'chunked';

/** Receives a body as it is read. A throw ends the reading. */
export interface BodyReceiver {
  /**
   * A piece of the body, which is not empty: one for each read, however many chunks that held.
   * @param framing bytes of sizes, extensions and line ends of chunks in the body so far
   */
  onData(piece: Buffer, framing: number): void;
  onEnd(trailers: RawHeaders): void;
}

/** `bytes`: `#left` bytes are to come. The others are the parts of a chunked body. */
type Part = 'ended' | 'bytes' | 'chunk-line' | 'chunk' | 'chunk-end' | 'trailers';

/** Reads the bodies of the messages of one connection, one at a time (RFC 9112 §6, §7). */
export class BodyReader {
  readonly #mostTrailers: number;
  #part: Part = 'ended';
  /** True before the first body, and when the last one has been read whole. Only the reader changes it. */
  isEnded = true;
  /** Bytes of the body, or of its chunk, that are to come. */
  #left = 0;
  /** Payload of the chunks in the current input, moved together. */
  #from = 0;
  #to = 0;
  #framing = 0;
  #excessFraming = 0;

  /** @param mostTrailers the largest trailer section in bytes */
  constructor(mostTrailers: number) {
    this.#mostTrailers = mostTrailers;
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
    this.isEnded = false;
    this.#part = framing === 'chunked' ? 'chunk-line' : 'bytes';
    this.#left = framing === 'chunked' ? 0 : framing;
    this.#framing = 0;
    this.#excessFraming = 0;
  }

  /** Expects no further bytes of the body. */
  stop(): void {
    this.isEnded = true;
    this.#part = 'ended';
  }

  /**
   * Reads to the end of the body or of the input, or to a part that has not come whole; returns where that is. The
   * payload of chunks is moved within the input, so nothing else may use the bytes.
   * @param known up to where the bytes were searched before
   * @throws MalformedMessage; any error of the receiver
   */
  read(input: Buffer, at: number, known: number, receiver: BodyReceiver): number {
    if (this.#part === 'bytes') return this.#readBytes(input, at, receiver);
    this.#from = 0;
    this.#to = 0;
    let next = at;
    try {
      for (let before = -1; next !== before && next < input.length && !this.isEnded; ) {
        before = next;
        next = this.#readPart(input, next, Math.max(next, known), receiver);
      }
    } finally {
      this.#pass(input, receiver);
    }
    return next;
  }

  #readBytes(input: Buffer, at: number, receiver: BodyReceiver): number {
    const end = Math.min(input.length, at + this.#left);
    this.#left -= end - at;
    receiver.onData(at === 0 && end === input.length ? input : input.subarray(at, end), 0);
    // The receiver may have stopped the body.
    if (this.#left === 0 && this.#part === 'bytes') this.#finish(NO_FIELDS, receiver);
    return end;
  }

  #readPart(input: Buffer, at: number, known: number, receiver: BodyReceiver): number {
    switch (this.#part) {
      case 'chunk-line':
        return this.#readChunkLine(input, at);
      case 'chunk-end':
        return this.#readChunkEnd(input, at);
      case 'trailers':
        return this.#readTrailers(input, at, known, receiver);
      default:
        return this.#readChunk(input, at);
    }
  }

  #readChunkLine(input: Buffer, at: number): number {
    const end = input.indexOf(LF, at);
    if ((end === -1 ? input.length : end) - at > MAX_CHUNK_LINE) throw new MalformedMessage('chunk');
    if (end === -1) return at;
    if (input[end - 1] !== CR) throw new MalformedMessage('chunk');
    this.#left = chunkSize(input, at, end - 1);
    this.#countFraming(end + 1 - at + CRLF_LENGTH);
    this.#part = this.#left === 0 ? 'trailers' : 'chunk';
    return end + 1;
  }

  /**
   * Small chunks are allowed in any number, as a stream of events may have them, but not with more framing than they
   * need.
   */
  #countFraming(bytes: number): void {
    this.#framing += bytes;
    this.#excessFraming = Math.max(0, this.#excessFraming + bytes - FRAMING_PER_CHUNK - 2 * this.#left);
    if (this.#excessFraming > MAX_EXCESS_FRAMING) throw new MalformedMessage('chunk-framing');
  }

  #readChunk(input: Buffer, at: number): number {
    const end = Math.min(input.length, at + this.#left);
    this.#left -= end - at;
    if (this.#to === 0) {
      this.#from = at;
      this.#to = end;
    } else {
      input.copyWithin(this.#to, at, end);
      this.#to += end - at;
    }
    if (this.#left === 0) this.#part = 'chunk-end';
    return end;
  }

  /** Passes the payload on that was read from this input. */
  #pass(input: Buffer, receiver: BodyReceiver): void {
    const [from, to] = [this.#from, this.#to];
    if (to === 0) return;
    this.#to = 0;
    const piece = from === 0 && to === input.length ? input : input.subarray(from, to);
    // A piece that waits keeps the whole buffer.
    const waste = input.length - piece.length;
    receiver.onData(waste > MAX_WASTE && waste > piece.length ? Buffer.from(piece) : piece, this.#framing);
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
      this.#pass(input, receiver);
      this.#finish(NO_FIELDS, receiver);
      return at + CRLF_LENGTH;
    }
    const end = sectionEnd(input, at, known, this.#mostTrailers, 'trailers-size');
    if (end === -1) return at;
    const trailers = fieldLines(input.toString('latin1', at, end - CRLF_LENGTH), 0);
    this.#pass(input, receiver);
    this.#finish(trailers, receiver);
    return end;
  }

  #finish(trailers: RawHeaders, receiver: BodyReceiver): void {
    this.isEnded = true;
    this.#part = 'ended';
    receiver.onEnd(trailers);
  }
}

/** Reads the size in a line between two places; extensions may follow it. */
function chunkSize(input: Buffer, from: number, to: number): number {
  let [size, at] = [0, from];
  for (let digit = digitAt(input, at); digit !== undefined; digit = digitAt(input, at)) {
    size = size * 16 + digit;
    at += 1;
  }
  const isValid =
    at > from &&
    Number.isSafeInteger(size) &&
    (at === to || CHUNK_EXTENSIONS.test(input.toString('latin1', at, to)));
  if (!isValid) throw new MalformedMessage('chunk');
  return size;
}

function digitAt(input: Buffer, at: number): number | undefined {
  return HEX_DIGITS.get(input[at] ?? 0);
}
