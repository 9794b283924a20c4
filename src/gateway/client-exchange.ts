import type { IncomingMessage, ServerResponse } from 'node:http';
import { TLSSocket } from 'node:tls';
import { Cancellation } from '../base/cancellation.ts';
import { GatewayError } from '../base/errors.ts';
import type { BodySource } from '../transport/request-body.ts';
import { onStall } from './linger.ts';

/** `idleMs` if no deployment sets it. */
const IDLE_MS = 30_000;

export const CLIENT_CLOSED = new GatewayError('client-closed', 'The client closed the connection.');

export interface ClientExchangeOptions {
  /** The end of the request line, such as `HTTP/1.1`. */
  readonly protocol: string;
  /** True if the client waits for 100 Continue before it sends its body (RFC 9110 §10.1.1). */
  readonly expectsContinue: boolean;
  /** Makes this the last request that is read from its connection. */
  readonly refuseRest: () => void;
}

/** One request of a client and its response. A connection has at most one exchange at a time. */
export class ClientExchange {
  readonly req: IncomingMessage;
  readonly res: ServerResponse;
  readonly protocol: string;
  readonly expectsContinue: boolean;
  readonly refuseRest: () => void;
  readonly cancellation = new Cancellation();
  /** Time that the client may leave the response unread, or pause in its body, in milliseconds. */
  idleMs = IDLE_MS;
  #stallLimited = false;
  #onLeft: (() => void) | undefined;

  constructor(req: IncomingMessage, res: ServerResponse, options: ClientExchangeOptions) {
    this.req = req;
    this.res = res;
    this.protocol = options.protocol;
    this.expectsContinue = options.expectsContinue;
    this.refuseRest = options.refuseRest;
  }

  /** Ends the connection if the client reads none of the pending bytes for `idleMs`. */
  limitStall(): void {
    if (this.#stallLimited || this.res.closed) return;
    this.#stallLimited = true;
    const { res, cancellation, idleMs } = this;
    const { socket } = this.req;
    // The socket's own timer does not work here: each byte that the client sends restarts it.
    const stop = onStall(
      idleMs,
      () => socket.bytesWritten - socket.writableLength,
      () => {
        // No byte is pending: the upstream is slow, not the client.
        if (socket.writableLength === 0) return;
        cancellation.cancel(clientTimeout(idleMs));
        socket.destroy();
      },
    );
    res.once('close', stop);
  }

  /** Called when the body is wanted: cancels the request if the client then sends nothing for `idleMs`. */
  expectBody(): void {
    // A body that came with the head is complete by then, and needs no timer.
    setImmediate(ClientExchange.#limitPause, this);
  }

  static #limitPause({ req, res, cancellation, idleMs }: ClientExchange): void {
    // Without a response to come, nothing would end the watch.
    if (req.complete || req.destroyed || res.closed) return;
    const { socket } = req;
    const stop = onStall(
      idleMs,
      () => socket.bytesRead,
      () => {
        // Bytes that wait here wait for the upstream, and a response that has begun has a limit of its own.
        if (req.readableLength === 0 && !req.complete && !res.headersSent) {
          cancellation.cancel(bodyPaused(idleMs));
        }
      },
    );
    req.once('close', stop);
    res.once('close', stop);
  }

  /**
   * Resolves when the last byte of the response has been sent, or the connection has ended; undefined if that is so
   * already. Destroys an incomplete response, which nothing would complete.
   */
  left(): Promise<void> | undefined {
    const { res } = this;
    if (res.closed) return undefined;
    if (!res.writableEnded) this.breakOff();
    else if (res.writableLength > 0) this.limitStall();
    return new Promise((resolve) => {
      this.#onLeft = resolve;
    });
  }

  /** Ends the connection in the middle of the response, so that the client can tell that the response is not whole. */
  breakOff(): void {
    const { httpVersion, socket } = this.req;
    // Without chunks and without a length, an orderly end would be that of the response (RFC 9112 §8). TLS has another
    // one, close_notify, which `destroy` does not send.
    if (httpVersion === '1.0' && !(socket instanceof TLSSocket)) socket.resetAndDestroy();
    else this.res.destroy();
  }

  /** Called when the response has been sent, or the connection has ended. */
  close(): void {
    if (!this.res.writableFinished) this.cancellation.cancel(CLIENT_CLOSED);
    this.#onLeft?.();
  }
}

/** Returns the client's body, still unread; undefined if the request has none. */
export function bodyOf(exchange: ClientExchange, onBytes: (count: number) => void): BodySource | undefined {
  const { req, res, expectsContinue } = exchange;
  const declared = req.headers['content-length'];
  if (declared === undefined && req.headers['transfer-encoding'] === undefined) return undefined;
  const open = (): IncomingMessage => {
    if (expectsContinue) res.writeContinue();
    exchange.expectBody();
    return req;
  };
  return { length: declared === undefined ? undefined : Number(declared), open, onBytes };
}

function clientTimeout(idleMs: number): GatewayError {
  return new GatewayError(
    'client-timeout',
    `The client read nothing of the response for ${idleMs} ms (timeouts.idle).`,
  );
}

function bodyPaused(idleMs: number): GatewayError {
  return new GatewayError(
    'request-timeout',
    `The client sent nothing of the body of the request for ${idleMs} ms (timeouts.idle).`,
  );
}
