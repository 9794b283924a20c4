import type { IncomingHttpHeaders } from 'node:http';

const LF = 0x0a;
const EMPTY = Buffer.alloc(0);
/** Ends every head (RFC 9112 §2.1) and every chunked body (§7.1). */
const END = Buffer.from('\r\n\r\n');
const PROTOCOL_LENGTH = 'HTTP/1.1'.length;

/**
 * Finds the end of a request in the bytes of a connection, so that a parser gets one request at a time. It
 * does not parse: it finds possible ends, and the parser confirms them.
 */
export class RequestBoundary {
  /** Body bytes that are still to come; 0 if there is no Content-Length. */
  #bodyBytes = 0;
  /** The last bytes of an incomplete request line. */
  #line = '';
  /** Bytes of the request line so far. */
  #lineBytes = 0;
  #protocol: string | undefined;
  /** The last bytes of the previous chunk, because `END` can be split between two. */
  #tail: Buffer = EMPTY;

  /** The last eight bytes of the request line, such as `HTTP/1.1`; undefined until they have come. */
  get protocol(): string | undefined {
    return this.#protocol;
  }

  /** Bytes of the request line that have come, without its end; all of them once there is a `protocol`. */
  get lineBytes(): number {
    return this.#lineBytes;
  }

  /** Begins the next request. */
  reset(): void {
    this.#bodyBytes = 0;
    this.#line = '';
    this.#lineBytes = 0;
    this.#protocol = undefined;
    this.#tail = EMPTY;
  }

  /** Stores the framing of the body. Called when the parser has the head. */
  expectBody(headers: IncomingHttpHeaders): void {
    if (headers['transfer-encoding'] === undefined) this.#bodyBytes = Number(headers['content-length'] ?? 0);
  }

  /**
   * Returns the end index of the bytes from `from` that the parser may get before the request's end is
   * checked.
   */
  next(chunk: Buffer, from: number): number {
    if (this.#bodyBytes > 0) {
      const end = Math.min(chunk.length, from + this.#bodyBytes);
      this.#bodyBytes -= end - from;
      return end;
    }
    if (this.#protocol === undefined) this.#readLine(chunk, from);
    return this.#endOfSection(chunk, from);
  }

  #readLine(chunk: Buffer, from: number): void {
    let start = from;
    for (;;) {
      const end = chunk.indexOf(LF, start);
      const stop = end === -1 ? chunk.length : end;
      this.#lineBytes += stop - start;
      // One more byte for the CR.
      const line = this.#line + chunk.toString('latin1', Math.max(start, stop - PROTOCOL_LENGTH - 1), stop);
      if (end === -1) {
        this.#line = line.slice(-PROTOCOL_LENGTH - 1);
        return;
      }
      this.#line = '';
      // Empty lines before a request are ignored (RFC 9112 §2.2).
      if (line !== '' && line !== '\r') {
        this.#protocol = line.trimEnd().slice(-PROTOCOL_LENGTH);
        return;
      }
      this.#lineBytes = 0;
      start = end + 1;
    }
  }

  #endOfSection(chunk: Buffer, from: number): number {
    const tail = this.#tail;
    this.#tail = EMPTY;
    if (tail.length > 0) {
      const seam = Buffer.concat([tail, chunk.subarray(from, from + END.length - 1)]);
      const found = seam.indexOf(END);
      if (found !== -1) return from + found + END.length - tail.length;
    }
    const found = chunk.indexOf(END, from);
    if (found !== -1) return found + END.length;
    const last = chunk.subarray(Math.max(from, chunk.length - END.length + 1));
    this.#tail = Buffer.concat([tail, last]).subarray(-END.length + 1);
    return chunk.length;
  }
}
