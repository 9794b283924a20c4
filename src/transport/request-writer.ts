import type { Socket } from 'node:net';
import { GatewayError } from '../base/errors.ts';
import { FieldNames, fieldValue, isToken } from '../base/raw-headers.ts';
import type { Message } from '../handshake/exchange.ts';
import { MAX_PIECES } from '../http1/body-reader.ts';
import { areFieldLines, contentLength } from '../http1/fields.ts';

/** Methods that say what content means. Content of another one may confuse the upstream (RFC 9110 §9.3.1). */
const WITH_CONTENT: ReadonlySet<string> = new Set([
  ...['PUT', 'POST', 'PATCH', 'QUERY', 'PROPFIND', 'PROPPATCH', 'REPORT', 'SEARCH', 'LOCK'],
]);
/** Fields that the connection writes itself. */
const OWN_FIELDS = new FieldNames([
  'host',
  'connection',
  'keep-alive',
  'upgrade',
  'expect',
  'content-length',
  'transfer-encoding',
]);

/** The end of the request line with the fields that are the same for all requests to a host. */
export interface OwnLines {
  /** For a request after which the connection stays open. */
  readonly kept: string;
  readonly last: string;
}

const OWN_LINES = 2;

/** @param host value of the Host field */
export function ownLines(host: string): OwnLines {
  const start = ` HTTP/1.1\r\nhost: ${host}\r\nconnection: `;
  return { kept: `${start}keep-alive\r\n`, last: `${start}close\r\n` };
}

/** Characters of the request line beside method and target. */
const AROUND_TARGET = '  HTTP/1.1\r\n'.length;
const NOT_IN_TARGET = /[^\x21-\x7e\x80-\xff]/;

/**
 * True if the connection is to be closed after the response. A server that sends a body for HEAD would have it taken for
 * the next response; behind the gateway's own questions, that is one to the answer to their challenge, which no client gets.
 */
export function isLastRequest({ method, body, request }: Message): boolean {
  return (method === 'HEAD' && request.client !== '') || (body !== null && !WITH_CONTENT.has(method));
}

/**
 * The error for a request whose body would go out in chunks, since its length is unknown; undefined: it would not, or may.
 * Chunks are only for an upstream that is known to read HTTP/1.1 (RFC 9112 §6.1). The response to the request for its
 * challenge counts: what others asked for last may come from an older program behind the same address.
 * @param isHttp10 true if the upstream answered with HTTP/1.0 last
 */
export function lengthRequired(
  { request, body, headers }: Message,
  isHttp10: boolean,
): GatewayError | undefined {
  if (body === null || Buffer.isBuffer(body)) return undefined;
  const { isHttp11 = !isHttp10 } = request.budget ?? {};
  if (isHttp11 || fieldValue(headers, 'content-length') !== undefined) return undefined;
  return new GatewayError(
    'length-required',
    'The upstream answers with HTTP/1.0, which has no chunks: send the body with Content-Length, or one that is small enough to be kept (body.replayUpTo).',
  );
}

/**
 * Writes a request whose body is there, or has none.
 * @param own from `ownLines`
 * @throws GatewayError `bad-request` if the body is not as long as declared; TypeError if the request is malformed.
 *   Nothing has been written then.
 */
export function writeRequest(socket: Socket, message: Message, body: Buffer | null, own: OwnLines): void {
  const size = body?.length ?? 0;
  if (body !== null && size !== (declaredLength(message) ?? size)) throw lengthMismatch();
  const hasLength = size > 0 || WITH_CONTENT.has(message.method);
  const head = headOf(message, own, hasLength ? `content-length: ${size}\r\n` : '');
  if (body === null || size === 0) {
    socket.write(head, 'latin1');
    return;
  }
  socket.cork();
  socket.write(head, 'latin1');
  socket.write(body);
  socket.uncork();
}

/** Writes a request whose body comes in pieces. Nothing is written before the first one. */
export class StreamedRequest {
  readonly #socket: Socket;
  readonly #head: string;
  /** Content-Length; undefined: chunked. */
  readonly #length: number | undefined;
  readonly #onSent: () => void;
  #written = 0;
  /** Pieces since the socket had nothing to send. */
  #pieces = 0;

  /**
   * @param onSent called when the socket has sent as many pieces as may wait
   * @throws TypeError if the request is malformed
   */
  constructor(socket: Socket, message: Message, own: OwnLines, onSent: () => void) {
    this.#socket = socket;
    this.#onSent = onSent;
    this.#length = declaredLength(message);
    const framing =
      this.#length === undefined ? 'transfer-encoding: chunked\r\n' : `content-length: ${this.#length}\r\n`;
    this.#head = headOf(message, own, framing);
  }

  /**
   * Writes the next piece, which is not empty; false: the socket should drain first, or `onSent` be called.
   * @throws GatewayError `bad-request` if the body is longer than declared
   */
  write(piece: Buffer): boolean {
    const isFirst = this.#written === 0;
    this.#written += piece.length;
    if (this.#length !== undefined && this.#written > this.#length) throw lengthMismatch();
    this.#pieces = this.#socket.writableLength === 0 ? 1 : this.#pieces + 1;
    const isFull = this.#pieces >= MAX_PIECES;
    this.#socket.cork();
    if (isFirst) this.#socket.write(this.#head, 'latin1');
    if (this.#length === undefined) this.#socket.write(`${piece.length.toString(16)}\r\n`, 'latin1');
    const more = this.#socket.write(piece, isFull ? this.#onSent : undefined);
    if (this.#length === undefined) this.#socket.write('\r\n', 'latin1');
    this.#socket.uncork();
    return more && !isFull;
  }

  /** @throws GatewayError `bad-request` if the body is shorter than declared */
  end(): void {
    if (this.#length !== undefined && this.#written !== this.#length) throw lengthMismatch();
    const isEmpty = this.#written === 0;
    if (isEmpty) this.#socket.write(this.#head, 'latin1');
    if (this.#length === undefined) this.#socket.write('0\r\n\r\n', 'latin1');
  }
}

/**
 * The whole head of a request.
 * @param framing line of the field for the length of the body; empty: none
 */
function headOf(message: Message, own: OwnLines, framing: string): string {
  const { method, target, headers } = message;
  if (!isToken(method) || !target.startsWith('/') || NOT_IN_TARGET.test(target)) {
    throw new TypeError('The request line is malformed.');
  }
  let head = `${method} ${target}${isLastRequest(message) ? own.last : own.kept}`;
  let lines = OWN_LINES;
  for (let at = 0; at + 1 < headers.length; at += 2) {
    const name = headers[at] ?? '';
    if (!isToken(name)) throw new TypeError('The name of a header is malformed.');
    if (OWN_FIELDS.has(name)) {
      // Written with the body.
      if (name.toLowerCase() === 'content-length') continue;
      throw new TypeError(`The header ${name} is reserved.`);
    }
    head += `${name}: ${headers[at + 1] ?? ''}\r\n`;
    lines += 1;
  }
  head += `${framing}\r\n`;
  if (framing !== '') lines += 1;
  // One test of all values: the text is made flat for it, which it has to be when it is written.
  if (!areFieldLines(head, method.length + target.length + AROUND_TARGET, lines))
    throw new TypeError('A header is malformed.');
  return head;
}

function declaredLength({ headers }: Message): number | undefined {
  const value = fieldValue(headers, 'content-length');
  if (value === undefined) return undefined;
  const length = contentLength(value);
  if (length === undefined) throw new TypeError('Content-Length is malformed.');
  return length;
}

function lengthMismatch(): GatewayError {
  return new GatewayError('bad-request', 'The body is not as long as its Content-Length says.');
}
