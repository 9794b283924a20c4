import { randomUUID } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { GatewayError } from '../base/errors.ts';
import { reportError } from '../base/report-error.ts';
import { ClientExchange } from './client-exchange.ts';
import type { Gateway } from './gateway.ts';
import { lingerOn } from './linger.ts';
import { sendRawProblem } from './problem.ts';
import { RequestBoundary } from './request-boundary.ts';
import { requestIdOf } from './request-id.ts';

const EMPTY = Buffer.alloc(0);
/** Bytes of later requests that are read from a connection during an exchange. */
const MOST_HELD = 16 * 1024;
const CLOSE = /(?:^|,)[ \t]*close[ \t]*(?:,|$)/i;

/**
 * One connection of a client, which carries one exchange at a time. The parser gets no byte behind a
 * request until the response has been sent, and none behind the last request of the connection. So
 * responses cannot mix, later requests take no memory but that of their bytes, and bytes behind a malformed
 * request are never parsed as another request.
 */
export class ClientConnection {
  readonly #socket: Socket;
  readonly #gateway: Gateway;
  readonly #parse: (chunk: Buffer) => void;
  readonly #boundary = new RequestBoundary();
  readonly #refuseRest = (): void => this.#close();
  readonly #onError = (error: unknown): void => this.#abandon(error);
  /** Set from the head of the request until the request is complete and the response has been sent. */
  #exchange: ClientExchange | undefined;
  /** Exchanges begun so far. */
  #begun = 0;
  /** Bytes behind the current request. */
  #held: Buffer = EMPTY;
  /** True if no further request is read. */
  #closing = false;
  /** True if bytes came behind the last request. */
  #surplus = false;
  /** True if the parser failed; then no byte is parsed. */
  #unreadable = false;

  /** @param parse passes bytes to the HTTP parser of the connection */
  constructor(socket: Socket, parse: (chunk: Buffer) => void, gateway: Gateway) {
    this.#socket = socket;
    this.#parse = parse;
    this.#gateway = gateway;
    const { destroySoon } = socket;
    // Node calls this after the last response, which may be so by a rule of its own: of unknown length to HTTP/1.0, or
    // to Expect: 100-continue without 100. No request behind it may be read.
    socket.destroySoon = () => {
      this.#close();
      // Closing while bytes of the client are unread resets the connection, and the client can lose the response.
      if (!this.#surplus && this.#exchange?.req.complete !== false) destroySoon.call(socket);
      else lingerOn(socket.end());
    };
  }

  /** Handles bytes that have come from the client. Never throws. */
  receive(chunk: Buffer): void {
    try {
      if (this.#held.length > 0) this.#hold(Buffer.concat([this.#held, chunk]));
      else this.#feed(chunk);
    } catch (error) {
      this.#abandon(error);
    }
  }

  /** After an unexpected error the connection must not stay open, since nothing would serve it. */
  #abandon(error: unknown): void {
    this.#socket.destroy();
    reportError(error);
  }

  /** Bytes of the request line that is being read, or was read last, as far as they have come. */
  get requestLineBytes(): number {
    return this.#boundary.lineBytes;
  }

  /** Begins an exchange. Called when the parser has read a head. */
  begin(req: IncomingMessage, res: ServerResponse, expectsContinue: boolean): void {
    if (this.#exchange !== undefined || this.#closing) {
      // The parser found two requests in one piece: its boundary differs from RequestBoundary's.
      this.#socket.destroy();
      return;
    }
    this.#boundary.expectBody(req.headers);
    const protocol = this.#boundary.protocol ?? '';
    const exchange = new ClientExchange(req, res, {
      protocol,
      expectsContinue,
      refuseRest: this.#refuseRest,
    });
    this.#exchange = exchange;
    this.#begun += 1;
    if (isLast(req, res)) {
      res.shouldKeepAlive = false;
      this.#close();
    }
    res.once('close', () => this.#onLeft(exchange));
    this.#gateway.handle(exchange).catch(this.#onError);
  }

  /** Refuses a head that is late, unless it arrived while the process was too busy to read it. */
  refuseLate(error: GatewayError): void {
    const begun = this.#begun;
    setImmediate(() => {
      if (this.#begun === begun && !this.#socket.destroyed) this.refuse(error, false);
    });
  }

  /** Refuses bytes that the parser cannot read. `ended`: the client has ended its side. */
  refuse(error: GatewayError, ended: boolean): void {
    const exchange = this.#exchange;
    this.#unreadable = true;
    if (exchange === undefined) this.#refuseMessage(error, randomUUID(), '');
    else if (exchange.res.closed || ended) this.#socket.destroy();
    else {
      this.#close();
      exchange.cancellation.cancel(error);
    }
  }

  /** Refuses a CONNECT request. */
  refuseTunnel(error: GatewayError, { headers }: IncomingMessage): void {
    this.#refuseMessage(error, requestIdOf(headers['x-request-id']), 'CONNECT');
  }

  /**
   * Closes the connection after the keep-alive time without a request. Bytes that arrived while the process
   * was busy are read first: closing before that would reset the connection and lose the request.
   */
  expire(): void {
    const seen = this.#socket.bytesRead;
    setImmediate(() => {
      if (this.#socket.bytesRead === seen) this.#socket.destroy();
    });
  }

  /**
   * Ends the connection after the current response, because the TLS settings that it was opened with are
   * outdated.
   */
  retire(): void {
    this.#close();
    const res = this.#exchange?.res;
    if (res === undefined || res.closed) {
      this.#socket.destroySoon();
      return;
    }
    if (!res.headersSent) res.shouldKeepAlive = false;
    res.once('close', () => this.#socket.destroySoon());
  }

  /** Refuses a message that never becomes an exchange. */
  #refuseMessage(error: GatewayError, requestId: string, method: string): void {
    if (this.#closing) return;
    this.#close();
    const address = this.#socket.remoteAddress ?? '';
    void this.#gateway
      .refuse(error, { requestId, method, address })
      .then((problem) => {
        if (this.#socket.writable) sendRawProblem(this.#socket, problem, requestId);
        else this.#socket.destroy();
      })
      .catch(this.#onError);
  }

  #close(): void {
    if (this.#closing) return;
    this.#closing = true;
    this.#surplus = this.#held.length > 0;
    this.#held = EMPTY;
    if (this.#socket.isPaused()) this.#socket.resume();
  }

  get #takesBytes(): boolean {
    if (this.#unreadable) return false;
    return this.#exchange === undefined ? !this.#closing : !this.#exchange.req.complete;
  }

  #feed(chunk: Buffer): void {
    let from = 0;
    while (from < chunk.length) {
      if (!this.#takesBytes) {
        this.#hold(chunk.subarray(from));
        return;
      }
      const end = this.#boundary.next(chunk, from);
      this.#parse(end - from === chunk.length ? chunk : chunk.subarray(from, end));
      from = end;
      this.#settle();
    }
  }

  #hold(bytes: Buffer): void {
    if (this.#closing) {
      this.#surplus = true;
      return;
    }
    this.#held = bytes;
    // Reading goes on up to this size, because only a reading socket reports that the client has left.
    if (bytes.length >= MOST_HELD) this.#socket.pause();
  }

  /** Ends the exchange when its request and its response are both complete. */
  #settle(): void {
    if (this.#exchange?.res.closed !== true || !this.#exchange.req.complete) return;
    this.#exchange = undefined;
    this.#boundary.reset();
  }

  #onLeft(exchange: ClientExchange): void {
    exchange.close();
    this.#settle();
    if (this.#held.length === 0 || this.#socket.destroyed) return;
    const held = this.#held;
    this.#held = EMPTY;
    this.receive(held);
    if (this.#held.length < MOST_HELD) this.#socket.resume();
  }
}

/** True if no further request may follow on the connection. */
function isLast({ headers, httpVersion, url = '' }: IncomingMessage, res: ServerResponse): boolean {
  const { connection } = headers;
  if (!res.shouldKeepAlive) return true;
  // A proxy does not know whether another proxy in between passed on a Connection that it did not understand (RFC 9112
  // §9.3, appendix C.2.2).
  if (httpVersion === '1.0' && !url.startsWith('/')) return true;
  // If the values of Connection disagree, close wins (RFC 9112 §9.3).
  return connection !== undefined && connection !== 'keep-alive' && CLOSE.test(connection);
}
