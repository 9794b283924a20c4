import type { Socket } from 'node:net';
import { GatewayError } from '../base/errors.ts';

/** The largest head of a response in bytes, its status line included. */
export const MAX_HEAD_BYTES = 32 * 1024;
/** Interim responses (1xx) of one exchange, and their bytes altogether. */
const MAX_INTERIM = 64;
const MAX_INTERIM_BYTES = 64 * 1024;

/** Between these is each byte of a status line up to its reason phrase (RFC 9112 §4). */
const LOWEST = Buffer.from('HTTP/1.0 100 ');
const HIGHEST = Buffer.from('HTTP/1.1 999 ');
const [STATUS_AT, PHRASE_AT] = [9, LOWEST.length];
const HEAD_END = Buffer.from('\r\n\r\n');
/** An empty line after lines that end without CR, which undici does not accept. */
const BARE_HEAD_END = /\n\r?\n/;
const [TAB, LF, CR, SPACE, ZERO, DELETE] = [0x09, 0x0a, 0x0d, 0x20, 0x30, 0x7f];

/**
 * Reads the response heads of one connection before undici does, and passes each on whole. undici takes RTSP and
 * HTTP/2.0 for HTTP/1.1 and 000 for a status, fails on 100 (Continue), keeps only the last piece of a reason phrase,
 * and bounds neither the reason phrase nor the number of interim responses. Bodies pass unread.
 */
export class ResponseHeads {
  readonly #socket: Socket;
  /** `idle`: no response is due. `body`: the head of the final response has been passed on. */
  #state: 'idle' | 'unsent' | 'head' | 'body' = 'idle';
  /** The start of a head that has not come whole. */
  #partial: Buffer | undefined;
  #interim = 0;
  #interimBytes = 0;
  #error: Error | undefined;

  /** Takes a new connection, of which nothing has been read. */
  constructor(socket: Socket) {
    this.#socket = socket;
    socket.on('error', (error) => {
      this.#error ??= error;
    });
    const read = socket.read.bind(socket);
    // undici reads with read(), Node.js itself with read(0), which gives nothing.
    socket.read = (size?: number): Buffer | null => (size === undefined ? this.#read(read) : read(size));
  }

  /** A request is about to be written. */
  begin(): void {
    this.#state = 'unsent';
    this.#interim = 0;
    this.#interimBytes = 0;
  }

  /** Bytes of the request have been written. */
  sent(): void {
    if (this.#state === 'unsent') this.#state = 'head';
  }

  /** The exchange is over. */
  end(): void {
    this.#state = 'idle';
  }

  get isIdle(): boolean {
    return this.#state === 'idle';
  }

  /** Closes the connection. A request that is under way on it is lost. */
  close(): void {
    this.#socket.destroy();
  }

  /**
   * How the connection broke; undefined: it is open, or the upstream ended it in order. Node.js does not tell whether
   * TLS ended with a close_notify, so any end of the connection that is not a reset or an error is one in order.
   */
  get broken(): Error | undefined {
    const { destroyed, readableEnded } = this.#socket;
    if (this.#error !== undefined || !destroyed || readableEnded) return this.#error;
    return new GatewayError('upstream-unreachable', 'The connection to the upstream broke.');
  }

  #read(read: () => Buffer | null): Buffer | null {
    for (;;) {
      const chunk = read();
      if (chunk === null || this.#state === 'body') return chunk;
      // A response that comes before its request would answer somebody else's: response smuggling.
      if (this.#state !== 'head') this.close();
      const passed = this.#socket.destroyed ? undefined : this.#take(chunk);
      if (this.#socket.destroyed) return null;
      if (passed !== undefined) return passed;
    }
  }

  /** The heads that are whole now, and what follows the final one; undefined: nothing to pass on. */
  #take(chunk: Buffer): Buffer | undefined {
    let bytes = this.#partial === undefined ? chunk : Buffer.concat([this.#partial, chunk]);
    this.#partial = undefined;
    const passed: Buffer[] = [];
    while (bytes.length > 0) {
      const found = bytes.indexOf(HEAD_END);
      if (found === -1) {
        this.#keep(bytes);
        break;
      }
      const end = found + HEAD_END.length;
      const status = this.#check(bytes, end);
      const readable = withReadablePhrase(bytes);
      // If the exchange was refused already, its error stays.
      if (status === undefined || readable === undefined) return this.#refuse(NOT_HTTP);
      if (status >= 200) {
        this.#state = 'body';
        if (passed.length === 0) return readable;
        passed.push(readable);
        break;
      }
      // The gateway answers Expect: 100-continue itself, so the client waits for no other 100.
      if (status !== 100) passed.push(readable.subarray(0, end + readable.length - bytes.length));
      bytes = bytes.subarray(end);
    }
    return passed.length === 0 ? undefined : Buffer.concat(passed);
  }

  #keep(bytes: Buffer): void {
    const isHttp = isStatusLine(bytes) && !BARE_HEAD_END.test(bytes.toString('latin1'));
    if (!isHttp) this.#refuse(NOT_HTTP);
    else if (bytes.length > MAX_HEAD_BYTES) this.#refuse(HEAD_TOO_LARGE);
    else this.#partial = bytes;
  }

  /** The status of the head at the start, which is so long; undefined: the exchange has ended with an error. */
  #check(bytes: Buffer, length: number): number | undefined {
    if (length > MAX_HEAD_BYTES) return this.#refuse(HEAD_TOO_LARGE);
    if (!isStatusLine(bytes)) return this.#refuse(NOT_HTTP);
    const status = statusOf(bytes);
    if (status === 101) return this.#refuse(UNASKED_SWITCH);
    if (status >= 200) return status;
    this.#interim += 1;
    this.#interimBytes += length;
    const tooMany = this.#interim > MAX_INTERIM || this.#interimBytes > MAX_INTERIM_BYTES;
    return tooMany ? this.#refuse(TOO_MANY_INTERIM) : status;
  }

  #refuse(detail: string): undefined {
    this.#socket.destroy(new GatewayError('upstream-protocol', detail));
  }
}

const NOT_HTTP = 'The response of the upstream is not HTTP/1.1 or HTTP/1.0.';
const HEAD_TOO_LARGE = `The head of the response of the upstream is larger than ${MAX_HEAD_BYTES} bytes.`;
const UNASKED_SWITCH = 'The upstream switched protocols (101) without having been asked to.';
const TOO_MANY_INTERIM = `The upstream sent more than ${MAX_INTERIM} interim responses, or more than ${MAX_INTERIM_BYTES} bytes of them.`;

/** True if the bytes are a status line, or the start of one. */
function isStatusLine(bytes: Buffer): boolean {
  const length = Math.min(bytes.length, PHRASE_AT);
  for (let at = 0; at < length; at += 1) {
    const byte = bytes[at] ?? 0;
    // Some servers leave out the space before an empty phrase.
    if (byte < (LOWEST[at] ?? 0) || byte > (HIGHEST[at] ?? 0)) return at === PHRASE_AT - 1 && byte === CR;
  }
  return true;
}

function statusOf(bytes: Buffer): number {
  const digit = (at: number): number => (bytes[STATUS_AT + at] ?? 0) - ZERO;
  return digit(0) * 100 + digit(1) * 10 + digit(2);
}

/**
 * undici reads the reason phrase as UTF-8: with the bytes above 7F in UTF-8 it gets their Latin-1 text. A phrase with
 * control characters is dropped (RFC 9112 §4), since no client could be sent it. Undefined: the line does not end with
 * CR and LF.
 */
function withReadablePhrase(bytes: Buffer): Buffer | undefined {
  let end = PHRASE_AT - 1;
  let control = false;
  let ascii = true;
  for (let byte = bytes[end] ?? LF; byte !== CR; byte = bytes[end] ?? LF) {
    if (byte === LF) return undefined;
    control ||= (byte < SPACE && byte !== TAB) || byte === DELETE;
    ascii &&= byte <= DELETE;
    end += 1;
  }
  if (bytes[end + 1] !== LF) return undefined;
  if (ascii && !control) return bytes;
  const phrase = control ? '' : bytes.toString('latin1', PHRASE_AT, end);
  return Buffer.concat([bytes.subarray(0, PHRASE_AT), Buffer.from(phrase, 'utf8'), bytes.subarray(end)]);
}
