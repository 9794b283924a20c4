import { brotliDecompressSync, constants, gunzipSync, inflateSync } from 'node:zlib';
import { fieldValues, type RawHeaders } from '../base/raw-headers.ts';

/** The most bytes of a body that are looked at, as they are sent. */
const MOST_BYTES = 16 * 1024;
/** The most bytes that these may become when they are decompressed. */
const MOST_DECODED = 256 * 1024;

const EMPTY = Buffer.alloc(0);

type Decode = (bytes: Buffer) => Buffer;

/** The input may end anywhere: the decoder returns the part that it has decoded. More than the limit is an error. */
const ZLIB = { finishFlush: constants.Z_SYNC_FLUSH, maxOutputLength: MOST_DECODED };
const BROTLI = { finishFlush: constants.BROTLI_OPERATION_FLUSH, maxOutputLength: MOST_DECODED };

const identity: Decode = (bytes) => bytes;
const gunzip: Decode = (bytes) => gunzipSync(bytes, ZLIB);

/** By content coding (RFC 9110 §8.4.1). */
const DECODERS: ReadonlyMap<string, Decode> = new Map([
  ['', identity],
  ['identity', identity],
  ['gzip', gunzip],
  ['x-gzip', gunzip],
  ['deflate', (bytes: Buffer) => inflateSync(bytes, ZLIB)],
  ['br', (bytes: Buffer) => brotliDecompressSync(bytes, BROTLI)],
]);

/** The start of a response body, collected to be searched. Size and work are bounded. */
export class BodyStart {
  /** Undefined: the coding is unknown, so nothing is found. */
  readonly #decode: Decode | undefined;
  #bytes = EMPTY;
  #length = 0;
  #searched = 0;

  /** `headers`: those of the response. */
  constructor(headers: RawHeaders) {
    this.#decode = DECODERS.get(fieldValues(headers, 'content-encoding').join(',').trim().toLowerCase());
  }

  /** True if no more of the body is looked at. */
  get complete(): boolean {
    return this.#decode === undefined || this.#length === MOST_BYTES;
  }

  add(chunk: Buffer): void {
    if (this.complete) return;
    if (this.#length === 0) this.#bytes = Buffer.allocUnsafe(MOST_BYTES);
    this.#length += chunk.copy(this.#bytes, this.#length);
  }

  /**
   * True if the text has come with the last chunk. Every call is for the same text. What is compressed is not searched
   * before it is complete.
   */
  hasReached(text: Buffer): boolean {
    if (this.#decode !== identity) return false;
    const from = Math.max(0, this.#searched - text.length + 1);
    this.#searched = this.#length;
    return this.#arrived.indexOf(text, from) !== -1;
  }

  /** The collected bytes, decompressed; empty: they cannot be decompressed, or are too many then. */
  decoded(): Buffer {
    try {
      return this.#decode?.(this.#arrived) ?? EMPTY;
    } catch {
      return EMPTY;
    }
  }

  get #arrived(): Buffer {
    return this.#bytes.subarray(0, this.#length);
  }
}
