import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import type { GatewayError } from '../base/errors.ts';
import { STATUS_CODES } from '../base/node-http.ts';
import { type RawHeaders, withoutField } from '../base/raw-headers.ts';
import { MAX_PIECES } from '../http1/body-reader.ts';
import { dateLine, linesOf } from './headers.ts';
import { lingerOn } from './pace.ts';
import type { RequestHead } from './request-reader.ts';

const CONTINUE = 'HTTP/1.1 100 Continue\r\n\r\n';
/** Bytes of pieces that wait for the end of a turn. */
const MOST_GATHERED = 64 * 1024;
const CRLF = '\r\n';
const CLOSED = 'Connection: close\r\n';
const CHUNKED = 'Transfer-Encoding: chunked\r\n';

type WriteCallback = (error?: Error | null) => void;

/**
 * The response of one exchange, written on the connection of its client (RFC 9112). Fields and their values are valid:
 * those of the upstream were checked when they were read.
 */
export class ClientResponse {
  readonly #socket: Socket;
  readonly #request: RequestHead;
  readonly #onWritten: WriteCallback;
  /** The field lines of a connection that stays open. */
  readonly #kept: string;
  /** The head until it is written with the first bytes of the body. */
  #head = '';
  #isChunked = false;
  #hasBody = true;
  #isContinued = false;
  #isGathering = false;
  /** False: the connection ends after this response. */
  keepsConnection: boolean;
  /** 0 until the head is there, which cannot be replaced any more then. */
  status = 0;
  /** Bytes of the body of an error of the gateway. */
  problemBytes = 0;
  /** True if no byte follows. */
  isEnded = false;
  /** For the connection: true if all of it has been given to the operating system. */
  isFinished = false;
  #onDrain: (() => void) | undefined;
  /** Pieces since the socket had nothing to send. */
  #pieces = 0;

  /**
   * @param kept the field lines of a connection that stays open
   * @param onWritten called when the last bytes have been given to the operating system, or cannot be
   */
  constructor(socket: Socket, request: RequestHead, kept: string, onWritten: WriteCallback) {
    this.#socket = socket;
    this.#request = request;
    this.#kept = kept;
    this.#onWritten = onWritten;
    this.keepsConnection = request.isPersistent;
  }

  /** Asks the client for its body. */
  continue(): void {
    this.#isContinued = true;
    this.#socket.write(CONTINUE, 'latin1');
  }

  /** Sends an interim response. */
  inform(status: number, fields: RawHeaders): void {
    this.#socket.write(`HTTP/1.1 ${status} ${reasonOf(status)}\r\n${linesOf(fields)}\r\n`, 'latin1');
  }

  /**
   * Sets the head of the final response, which leaves with the first bytes of the body, or with `flush`.
   * @param lines those of its fields, but for the connection and chunks
   * @param hasLength true if Content-Length is one of them
   */
  begin(status: number, reason: string, lines: string, hasLength: boolean): void {
    const { method, httpVersion, expectsContinue } = this.#request;
    this.status = status;
    this.#hasBody = hasBody(status, method);
    if (this.#hasBody && !hasLength) {
      // To HTTP/1.0, a body without a length ends with the connection.
      if (httpVersion === '1.1') this.#isChunked = true;
      else this.keepsConnection = false;
    }
    // A client that waits in vain for 100 may send its body or not: the next bytes can be either.
    if (expectsContinue && !this.#isContinued) this.keepsConnection = false;
    const ownLines = this.keepsConnection ? this.#kept : CLOSED;
    this.#head = `HTTP/1.1 ${status} ${reason}\r\n${lines}${this.#isChunked ? CHUNKED : ''}${ownLines}\r\n`;
  }

  /** Sends what has not left yet: the head, and pieces that were gathered. */
  flush(): void {
    const head = this.#takeHead();
    if (head !== '') this.#socket.write(head, 'latin1');
    this.#release();
  }

  /**
   * Sends a piece of the body, which is not empty; false: the socket should drain first. Pieces that come in one turn of
   * the event loop leave together, up to `MOST_GATHERED` or `MAX_PIECES`.
   */
  write(piece: Buffer): boolean {
    const socket = this.#socket;
    if (!this.#isGathering) {
      this.#isGathering = true;
      socket.cork();
      setImmediate(ClientResponse.#releaseLater, this);
    }
    this.#pieces = socket.writableLength === 0 ? 1 : this.#pieces + 1;
    const isFull = this.#hasBody && this.#pieces >= MAX_PIECES;
    const onSent = isFull ? (): void => this.drained() : undefined;
    const head = this.#takeHead();
    const before = this.#isChunked ? `${head}${piece.length.toString(16)}\r\n` : head;
    if (before !== '') socket.write(before, 'latin1');
    if (this.#hasBody) socket.write(piece, this.#isChunked ? undefined : onSent);
    if (this.#isChunked) socket.write(CRLF, 'latin1', onSent);
    if (!isFull && socket.writableLength < MOST_GATHERED) return true;
    this.#release();
    return !isFull && socket.writableLength < socket.writableHighWaterMark;
  }

  /** Sends the pieces that were gathered. */
  #release(): void {
    if (!this.#isGathering) return;
    this.#isGathering = false;
    this.#socket.uncork();
  }

  static #releaseLater(response: ClientResponse): void {
    response.#release();
  }

  /**
   * Sends the last piece of the body, the trailers if it is chunked, and with them the head if it has not left yet: in
   * one write.
   */
  end(last: Buffer | undefined, trailers: RawHeaders): void {
    const socket = this.#socket;
    this.isEnded = true;
    this.#release();
    // A plain socket has nearly always written all of it when `write` returns, and a callback costs a turn of the tick
    // queue.
    const onWritten = socket instanceof TLSSocket ? this.#onWritten : undefined;
    this.#writeLast(last, trailers, onWritten);
    if (onWritten !== undefined) return;
    if (socket.writableLength > 0) socket.write('', this.#onWritten);
    else if (!socket.destroyed && socket.errored === null) this.#onWritten();
  }

  /** Does the same with the body of an error of the gateway. */
  endWithProblem(body: Buffer): void {
    if (this.#hasBody) this.problemBytes = body.length;
    this.end(body, []);
  }

  #writeLast(last: Buffer | undefined, trailers: RawHeaders, onWritten: WriteCallback | undefined): void {
    const socket = this.#socket;
    const head = this.#takeHead();
    const piece = this.#hasBody && last !== undefined && last.length > 0 ? last : undefined;
    if (!this.#isChunked && piece === undefined) {
      socket.write(head, 'latin1', onWritten);
      return;
    }
    socket.cork();
    if (!this.#isChunked) {
      if (head !== '') socket.write(head, 'latin1');
    } else if (piece !== undefined) {
      socket.write(`${head}${piece.length.toString(16)}\r\n`, 'latin1');
    }
    if (piece !== undefined) socket.write(piece, this.#isChunked ? undefined : onWritten);
    if (this.#isChunked) {
      const before = piece === undefined ? head : CRLF;
      socket.write(`${before}0\r\n${linesOf(trailers)}\r\n`, 'latin1', onWritten);
    }
    socket.uncork();
  }

  /** Calls `resume` once, when the socket has drained. */
  whenDrained(resume: () => void): void {
    this.#onDrain = resume;
  }

  /** For the connection: the socket has drained. */
  drained(): void {
    const resume = this.#onDrain;
    this.#onDrain = undefined;
    resume?.();
  }

  #takeHead(): string {
    const head = this.#head;
    this.#head = '';
    return head;
  }
}

/** True if a final response with this status to this method has a body (RFC 9112 §6.3). */
export function hasBody(status: number, method: string): boolean {
  return method !== 'HEAD' && status !== 204 && status !== 304;
}

/** The reason phrase of a status; empty if it has none. */
function reasonOf(status: number): string {
  return STATUS_CODES[status] ?? '';
}

interface Problem {
  readonly status: number;
  readonly headers: RawHeaders;
  readonly body: string;
}

/**
 * Sends an error of the gateway: problem+json (RFC 9457), Proxy-Status (RFC 9209) and `lines`, those of further fields.
 */
export function sendProblem(
  response: ClientResponse,
  error: GatewayError,
  requestId: string,
  lines = '',
): void {
  const { status, headers, body } = problemOf(error, requestId);
  response.begin(status, reasonOf(status), `${linesOf(headers)}${lines}${dateLine()}`, true);
  response.endWithProblem(Buffer.from(body));
}

/**
 * Does the same on a connection on which no request could be read, and closes it. Returns the number of bytes of the
 * body.
 */
export function sendRawProblem(socket: Socket, error: GatewayError, requestId: string): number {
  if (!socket.writable) {
    socket.destroy();
    return 0;
  }
  const { status, headers, body } = problemOf(error, requestId);
  const lines = `${linesOf(headers)}${dateLine()}Connection: close\r\n`;
  socket.end(`HTTP/1.1 ${status} ${reasonOf(status)}\r\n${lines}\r\n${body}`);
  lingerOn(socket);
  return Buffer.byteLength(body);
}

function problemOf(error: GatewayError, requestId: string): Problem {
  const { code, detail, kind, proxyError } = error;
  const { status, title } = kind;
  const body = `${JSON.stringify({ status, code, title, detail, requestId })}\n`;
  return {
    status,
    body,
    headers: [
      ...headersOf(error),
      'content-type',
      'application/problem+json',
      'content-length',
      String(Buffer.byteLength(body)),
      'cache-control',
      'no-store',
      'proxy-status',
      `digest-gateway; error=${proxyError}`,
      'x-request-id',
      requestId,
    ],
  };
}

/** Returns the headers of the error's code; a Retry-After of the error itself takes the place of the code's. */
function headersOf({ headers = [], retryAfter }: GatewayError): RawHeaders {
  if (retryAfter === undefined) return headers;
  return ['retry-after', String(retryAfter), ...withoutField(headers, 'retry-after')];
}
