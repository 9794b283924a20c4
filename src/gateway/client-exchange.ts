import type { Socket } from 'node:net';
import { Readable } from 'node:stream';
import { TLSSocket } from 'node:tls';
import { Cancellation } from '../base/cancellation.ts';
import { GatewayError } from '../base/errors.ts';
import type { BodySource } from '../transport/request-body.ts';
import type { ClientResponse } from './client-response.ts';
import { closeWhenIdle, type Pace, watchPace } from './pace.ts';
import type { RequestHead } from './request-reader.ts';

/** Until a deployment sets another one. */
const PACE: Pace = { idleMs: 30_000, minRate: 240 };

export const CLIENT_CLOSED = new GatewayError('client-closed', 'The client closed the connection.');

/** The connection that an exchange is on. */
export interface ExchangeOwner {
  /** Of the client; empty over a UNIX socket. */
  readonly address: string;
  /** Reads the body of the request, and what follows, again. */
  resume(): void;
  /** Makes this the last request that is read from the connection. */
  refuseRest(): void;
  /** Does so, and discards the rest of its body unread. */
  discardBody(): void;
}

/** The body of a client's request. An unread body holds the client back. */
class ClientBody extends Readable {
  readonly #owner: ExchangeOwner;

  constructor(owner: ExchangeOwner) {
    // Nothing is read ahead: the socket does so already.
    super({ highWaterMark: 0 });
    this.#owner = owner;
    // Without a listener, a client that breaks off would end the process while its body is not read.
    this.on('error', () => {});
  }

  override _read(): void {
    this.#owner.resume();
  }
}

/** One request of a client and its response. A connection has at most one exchange at a time. */
export class ClientExchange {
  readonly socket: Socket;
  /** Of the other end of the connection; empty over a UNIX socket. */
  readonly address: string;
  readonly request: RequestHead;
  readonly response: ClientResponse;
  readonly cancellation = new Cancellation();
  /** How the client has to send its body and read the response. */
  pace = PACE;
  /** True if the request has been read whole. */
  isComplete: boolean;
  /** True if the response has been sent, or the connection has ended. */
  hasLeft = false;
  readonly #owner: ExchangeOwner;
  readonly #body: ClientBody | undefined;
  /** Bytes of chunk framing in the body so far. */
  #framing = 0;
  #isDiscarding = false;
  #isStallLimited = false;
  /** Ends the watches of the client's pauses. */
  #stops: (() => void)[] | undefined;
  #endLinger: (() => void) | undefined;
  #onLeft: (() => void) | undefined;

  constructor(socket: Socket, request: RequestHead, response: ClientResponse, owner: ExchangeOwner) {
    this.socket = socket;
    this.address = owner.address;
    this.request = request;
    this.response = response;
    this.#owner = owner;
    this.isComplete = request.body === 0;
    this.#body = this.isComplete ? undefined : new ClientBody(owner);
  }

  /** Makes this the last exchange of the connection. Called before the response has a head. */
  endConnection(): void {
    this.response.keepsConnection = false;
    this.#owner.refuseRest();
  }

  /**
   * Makes this the last exchange of the connection if chunks of its body are to come. Called before the response has a
   * head.
   */
  refuseChunks(): void {
    if (this.isComplete || this.request.body !== 'chunked') return;
    this.response.keepsConnection = false;
    this.#owner.discardBody();
  }

  /** Takes the next bytes of the body; false: reading should stop until somebody has read them. */
  take(piece: Buffer, framing: number): boolean {
    this.#framing = framing;
    return this.#isDiscarding || this.#body?.push(piece) !== false;
  }

  /** The request has been read whole. */
  complete(): void {
    this.isComplete = true;
    this.#body?.push(null);
    this.#endLinger?.();
  }

  /** Returns the body, still unread; undefined if there is none. */
  bodySource(onBytes: BodySource['onBytes']): BodySource | undefined {
    const { body, expectsContinue } = this.request;
    const stream = this.#body;
    if (stream === undefined) return undefined;
    const open = (): Readable => {
      if (expectsContinue) this.response.continue();
      // A body that came with the head is complete by then, and needs no timer.
      setImmediate(ClientExchange.#limitPause, this);
      return stream;
    };
    const framing = (): number => this.#framing;
    const length = body === 'chunked' ? undefined : body;
    return { length, expectsContinue, open, framing, onBytes };
  }

  /** Cancels the request if the client sends its body more slowly than `pace`. */
  static #limitPause(exchange: ClientExchange): void {
    const { socket, response, cancellation, pace } = exchange;
    // Without a response to come, nothing would end the watch.
    if (exchange.isComplete || exchange.hasLeft || socket.destroyed) return;
    // Bytes that wait here wait for the upstream, and a response that has begun has a limit of its own.
    const count = (): number | undefined =>
      socket.isPaused() || exchange.isComplete || response.status !== 0 ? undefined : socket.bytesRead;
    exchange.#watch(watchPace(pace, count, (stalled) => cancellation.cancel(slowBody(pace, stalled))));
  }

  /** Ends the connection if the client reads the pending bytes more slowly than `pace`. */
  limitStall(): void {
    if (this.#isStallLimited || this.hasLeft) return;
    this.#isStallLimited = true;
    const { socket, cancellation, pace } = this;
    // The socket's own timer does not work here: each byte that the client sends restarts it. Without a pending byte the
    // upstream is slow, not the client.
    const count = (): number | undefined =>
      socket.writableLength === 0 ? undefined : socket.bytesWritten - socket.writableLength;
    const stop = watchPace(pace, count, (stalled) => {
      cancellation.cancel(slowReader(pace, stalled));
      this.breakOff();
    });
    this.#watch(stop);
  }

  /**
   * Resolves when the last byte of the response has been sent, or the connection has ended; undefined if that is so
   * already. Destroys an incomplete response, which nothing would complete.
   */
  left(): Promise<void> | undefined {
    if (!this.isComplete) this.#discard();
    if (this.hasLeft) return undefined;
    if (!this.response.isEnded) this.breakOff();
    else if (this.socket.writableLength > 0) this.limitStall();
    return new Promise((resolve) => {
      this.#onLeft = resolve;
    });
  }

  /** Ends the connection in the middle of the response, so that the client notices that the response is not whole. */
  breakOff(): void {
    const { socket, request, response } = this;
    response.flush();
    // Without chunks and without a length, an orderly end would be that of the response (RFC 9112 §8). TLS has another
    // one, close_notify, which `destroy` does not send. A UNIX socket, which has no port, cannot be reset. A reset takes
    // with it what the system has not sent of a response before.
    const endsWithConnection =
      request.httpVersion === '1.0' && response.status !== 0 && !response.keepsConnection;
    const canReset = !(socket instanceof TLSSocket) && socket.remotePort !== undefined;
    if (endsWithConnection && canReset) socket.resetAndDestroy();
    else socket.destroy();
  }

  /** The response has been sent, or the connection has ended. */
  leave(): void {
    this.hasLeft = true;
    if (!this.response.isFinished) this.cancellation.cancel(CLIENT_CLOSED);
    else if (this.#isDiscarding) this.#linger();
    if (this.#stops !== undefined) for (const stop of this.#stops) stop();
    this.#stops = undefined;
    this.#onLeft?.();
  }

  /** The connection has ended. */
  close(): void {
    if (!this.isComplete) this.#body?.destroy(CLIENT_CLOSED);
    if (!this.hasLeft) this.leave();
  }

  /**
   * Reads and discards the rest of the body after an early response. Closing at once would reset the connection, and a
   * client that sends its whole body before it reads would lose the response.
   */
  #discard(): void {
    if (this.socket.destroyed) return;
    this.#isDiscarding = true;
    this.#owner.resume();
    if (this.hasLeft) this.#linger();
  }

  /** Limits how long the rest of the body is discarded. Until the response has left, its own limits hold. */
  #linger(): void {
    if (!this.isComplete) this.#endLinger = closeWhenIdle(this.socket);
  }

  #watch(stop: () => void): void {
    this.#stops ??= [];
    this.#stops.push(stop);
  }
}

function slowReader({ idleMs, minRate }: Pace, stalled: boolean): GatewayError {
  const how = stalled
    ? `nothing of the response for ${idleMs} ms (timeouts.idle)`
    : `less than ${minRate} bytes per second of the response (body.minRate)`;
  return new GatewayError('client-timeout', `The client read ${how}.`);
}

function slowBody({ idleMs, minRate }: Pace, stalled: boolean): GatewayError {
  const how = stalled
    ? `nothing of the body of the request for ${idleMs} ms (timeouts.idle)`
    : `less than ${minRate} bytes per second of the body of the request (body.minRate)`;
  return new GatewayError('request-timeout', `The client sent ${how}.`);
}
