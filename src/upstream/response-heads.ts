import type { Socket } from 'node:net';
import { GatewayError } from '../base/errors.ts';

/** The largest head of a response in bytes, its status line included. */
export const MAX_HEAD_BYTES = 32 * 1024;
/** Interim responses (1xx) of one exchange, and their bytes altogether. */
const MAX_INTERIM = 64;
const MAX_INTERIM_BYTES = 64 * 1024;

/** RFC 9112 §4, up to the reason phrase; some servers leave out the space before an empty one. */
const STATUS_LINE = /^HTTP\/1\.[01] [1-9]\d\d[ \r]/;
const SMALLEST_STATUS_LINE = 'HTTP/1.1 100 ';
const [STATUS_AT, PHRASE_AT] = [9, SMALLEST_STATUS_LINE.length];
const HEAD_END = Buffer.from('\r\n\r\n');
/** An empty line after lines that end without CR, which undici does not accept. */
const BARE_HEAD_END = /\n\r?\n/;
const [TAB, LF, CR, SPACE, DELETE] = [0x09, 0x0a, 0x0d, 0x20, 0x7f];

/**
 * Reads the response heads of one connection before undici does, and passes each on whole. undici takes RTSP and
 * HTTP/2.0 for HTTP/1.1 and 000 for a status, fails on 100 (Continue), keeps only the last piece of a reason phrase,
 * and bounds neither the reason phrase nor the number of interim responses. Bodies pass unread.
 */
export class ResponseHeads {
  readonly #socket: Socket;
  /** `idle`: no response is due. `body`: the head of the final response has been passed on. */
  #state: 'idle' | 'head' | 'body' = 'idle';
  /** The start of a head that has not come whole. */
  #partial: Buffer | undefined;
  /** `socket.bytesWritten` before the request. */
  #written = 0;
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
    this.#state = 'head';
    this.#written = this.#socket.bytesWritten;
    this.#interim = 0;
    this.#interimBytes = 0;
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
      const unasked = this.#state === 'idle' || this.#socket.bytesWritten === this.#written;
      // A response that comes before its request would answer somebody else's: response smuggling.
      if (unasked) this.close();
      const passed = unasked ? undefined : this.#take(chunk);
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
      const received = bytes.subarray(0, found + HEAD_END.length);
      const status = this.#check(received);
      if (status === undefined) return undefined;
      const head = withReadablePhrase(received);
      if (status >= 200) {
        this.#state = 'body';
        if (head === received && passed.length === 0) return bytes;
        passed.push(head, bytes.subarray(received.length));
        break;
      }
      // The gateway answers Expect: 100-continue itself, so the client waits for no other 100.
      if (status !== 100) passed.push(head);
      bytes = bytes.subarray(received.length);
    }
    return passed.length === 0 ? undefined : Buffer.concat(passed);
  }

  #keep(bytes: Buffer): void {
    const start = bytes.toString('latin1', 0, PHRASE_AT);
    const isHttp = STATUS_LINE.test(start + SMALLEST_STATUS_LINE.slice(start.length));
    if (!isHttp || BARE_HEAD_END.test(bytes.toString('latin1'))) this.#refuse(NOT_HTTP);
    else if (bytes.length > MAX_HEAD_BYTES) this.#refuse(HEAD_TOO_LARGE);
    else this.#partial = bytes;
  }

  /** The status of a head that can be passed on; undefined: the exchange has ended with an error. */
  #check(head: Buffer): number | undefined {
    if (head.length > MAX_HEAD_BYTES) return this.#refuse(HEAD_TOO_LARGE);
    const start = head.toString('latin1', 0, PHRASE_AT);
    const lineEnd = head.indexOf(LF);
    if (!STATUS_LINE.test(start) || head.indexOf(CR) !== lineEnd - 1) return this.#refuse(NOT_HTTP);
    const status = Number(start.slice(STATUS_AT, STATUS_AT + 3));
    if (status === 101) return this.#refuse(UNASKED_SWITCH);
    if (status >= 200) return status;
    this.#interim += 1;
    this.#interimBytes += head.length;
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

/**
 * undici reads the reason phrase as UTF-8: with the bytes above 7F in UTF-8 it gets their Latin-1 text. A phrase with
 * control characters is dropped (RFC 9112 §4), since no client could be sent it.
 */
function withReadablePhrase(head: Buffer): Buffer {
  const end = head.indexOf(CR);
  let ascii = true;
  for (let at = PHRASE_AT; at < end; at += 1) {
    const byte = head[at] ?? 0;
    if ((byte < SPACE && byte !== TAB) || byte === DELETE) {
      return Buffer.concat([head.subarray(0, PHRASE_AT), head.subarray(end)]);
    }
    if (byte > DELETE) ascii = false;
  }
  if (ascii) return head;
  const phrase = Buffer.from(head.toString('latin1', PHRASE_AT, end), 'utf8');
  return Buffer.concat([head.subarray(0, PHRASE_AT), phrase, head.subarray(end)]);
}
