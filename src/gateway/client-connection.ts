import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import { addressOf } from '../base/client-address.ts';
import { GatewayError } from '../base/errors.ts';
import { reportError } from '../base/report-error.ts';
import { ClientExchange, type ExchangeOwner } from './client-exchange.ts';
import { ClientResponse } from './client-response.ts';
import type { Gateway } from './gateway.ts';
import { lingerOn } from './pace.ts';
import { type RequestHead, RequestReader, type RequestReceiver } from './request-reader.ts';

const EMPTY = Buffer.alloc(0);
/** Bytes of later requests that are read from a connection during an exchange. */
const MOST_HELD = 16 * 1024;
/**
 * Milliseconds for which a connection outlives the keep-alive timeout that its client knows: a request may be on its
 * way.
 */
const KEEP_ALIVE_MARGIN = 1_000;

export interface ConnectionOptions {
  /** Number of the listener that accepts it. */
  readonly listener: number;
  /** Maximum size of request line and headers together, in bytes. */
  readonly headerSize: number;
  /** Time from the connection's start, or the request's first byte, to the end of the head, in milliseconds. */
  readonly headersTimeout: number;
  /** Time that a connection may wait for its next request, in milliseconds. */
  readonly keepAliveTimeout: number;
}

/**
 * One connection of a client, which carries one exchange at a time. No byte behind a request is read until the response
 * has been sent, and none behind the last request of the connection. So responses cannot mix, later requests take no
 * memory but that of their bytes, and bytes behind a malformed request are never taken for another request.
 */
export class ClientConnection implements RequestReceiver, ExchangeOwner {
  readonly address: string;
  readonly #socket: Socket;
  readonly #gateway: Gateway;
  readonly #options: ConnectionOptions;
  readonly #reader: RequestReader;
  /** The field lines of a response after which the connection stays open. */
  readonly #kept: string;
  readonly #onError = (error: unknown): void => this.#abandon(error);
  /** The last bytes of a response have been given to the operating system, or could not be. */
  readonly #onWritten = (error?: Error | null): void => {
    const exchange = this.#exchange;
    // After an error, 'close' follows.
    if (exchange === undefined || exchange.hasLeft || error != null) return;
    exchange.response.isFinished = true;
    exchange.leave();
    if (!exchange.response.keepsConnection) this.#end(exchange);
  };
  /** The gateway is done with the current request. */
  readonly #onHandled = (): void => {
    this.#isHandled = true;
    this.#settle();
  };
  /** Handles bytes that have come from the client. Never throws. */
  readonly #receive = (chunk: Buffer): void => {
    try {
      if (this.#held.length > 0) this.#hold(Buffer.concat([this.#held, chunk]));
      else this.#read(chunk);
    } catch (error) {
      if (error instanceof GatewayError) this.#refuse(error);
      else this.#abandon(error);
    }
  };
  /** Set from the head of the request until the request is complete and has been handled. */
  #exchange: ClientExchange | undefined;
  /** True if the exchange has been handled, and holds no permit any more. */
  #isHandled = false;
  /** Exchanges begun so far. */
  #begun = 0;
  /** Bytes behind the current request. */
  #held: Buffer = EMPTY;
  /** True if no further request is read. */
  #isClosing = false;
  /** True if the next request is the last one. */
  #isRetiring = false;
  /** True if bytes came behind the last request. */
  #hasSurplus = false;
  /** True if no byte is read any more: a request was malformed, or its body is not wanted. */
  #isUnreadable = false;
  /** True if reading waits for somebody to read the body. */
  #awaitsReader = false;
  /** True from the first byte of a head, or of the connection, to its end. */
  #awaitsHead = true;
  /** When the wait for a head, or for the first byte of one, began. */
  #waitsSince = performance.now();

  constructor(socket: Socket, gateway: Gateway, options: ConnectionOptions) {
    this.address = addressOf(socket);
    this.#socket = socket;
    this.#gateway = gateway;
    this.#options = options;
    this.#reader = new RequestReader(options.headerSize, this);
    const seconds = Math.floor(options.keepAliveTimeout / 1000);
    this.#kept = `Connection: keep-alive\r\nKeep-Alive: timeout=${seconds}\r\n`;
    socket.on('data', this.#receive);
    socket.on('end', () => this.#ended());
    socket.on('drain', () => this.#exchange?.response.drained());
    // 'close' follows.
    socket.on('error', () => socket.destroy());
    socket.once('close', () => this.#exchange?.close());
  }

  /** True if the client has shown a certificate that TLS accepted. */
  get isAuthorized(): boolean {
    return this.#socket instanceof TLSSocket && this.#socket.authorized;
  }

  /** True if no request is being read or served. */
  get isIdle(): boolean {
    return this.#exchange === undefined && this.#reader.isBetween;
  }

  /** Called in intervals: refuses a head that is late, and closes a connection that has been idle for too long. */
  tick(now: number): void {
    if (this.#exchange !== undefined || this.#isClosing) return;
    const waited = now - this.#waitsSince;
    if (this.#awaitsHead) {
      if (waited > this.#options.headersTimeout) this.#refuseLate();
    } else if (waited > this.#options.keepAliveTimeout + KEEP_ALIVE_MARGIN) {
      this.#expire();
    }
  }

  /**
   * Ends the connection after the current response, because the TLS settings that it was opened with are
   * outdated.
   */
  retire(): void {
    this.refuseRest();
    const exchange = this.#exchange;
    if (exchange === undefined || exchange.hasLeft) this.#socket.destroySoon();
    else exchange.response.keepsConnection = false;
  }

  /** The same, but a connection whose client does not know it yet serves one more request: it may be on its way. */
  retireNext(): void {
    this.#isRetiring = true;
    if (this.#exchange?.response.status === 0) this.#exchange.endConnection();
  }

  /** Ends the connection at once, so that its client notices if the response is not whole. */
  destroy(): void {
    const exchange = this.#exchange;
    if (exchange === undefined || exchange.hasLeft) this.#socket.destroy();
    else exchange.breakOff();
  }

  /** Ends the connection at once, and what is under way on it, because the gateway ends. */
  cutOff(): void {
    const exchange = this.#exchange;
    if (exchange?.hasLeft === false) {
      exchange.cancellation.cancel(
        new GatewayError('draining', 'The gateway ended before the response was whole (drain.timeout).'),
      );
    }
    this.destroy();
  }

  onHead(head: RequestHead): void {
    this.#begun += 1;
    this.#awaitsHead = false;
    const response = new ClientResponse(this.#socket, head, this.#kept, this.#onWritten);
    const exchange = new ClientExchange(this.#socket, head, response, this);
    this.#exchange = exchange;
    this.#isHandled = false;
    if (this.#isRetiring) response.keepsConnection = false;
    if (!response.keepsConnection) this.refuseRest();
    this.#gateway.handle(exchange, this.#options.listener).then(this.#onHandled, this.#onError);
  }

  onData(piece: Buffer, framing: number): void {
    if (this.#exchange?.take(piece, framing) !== false) return;
    this.#awaitsReader = true;
    this.#socket.pause();
  }

  onEnd(): void {
    this.#exchange?.complete();
    // Only a reading socket reports that the client has left.
    this.resume();
    this.#settle();
  }

  resume(): void {
    if (!this.#awaitsReader) return;
    this.#awaitsReader = false;
    this.#socket.resume();
  }

  refuseRest(): void {
    if (this.#isClosing) return;
    this.#isClosing = true;
    this.#hasSurplus = this.#held.length > 0;
    this.#held = EMPTY;
    if (!this.#awaitsReader) this.#socket.resume();
  }

  discardBody(): void {
    this.#isUnreadable = true;
    this.refuseRest();
  }

  #read(chunk: Buffer): void {
    let at = 0;
    while (at < chunk.length) {
      const exchange = this.#exchange;
      const isWanted = exchange === undefined ? !this.#isClosing : !exchange.isComplete;
      if (this.#isUnreadable || !isWanted) {
        this.#hold(at === 0 ? chunk : chunk.subarray(at));
        return;
      }
      at = this.#reader.read(chunk, at);
    }
    if (this.#exchange === undefined && !this.#awaitsHead && !this.#reader.isBetween) this.#awaitHead(true);
  }

  #awaitHead(hasBegun: boolean): void {
    this.#awaitsHead = hasBegun;
    this.#waitsSince = performance.now();
  }

  #hold(bytes: Buffer): void {
    if (this.#isClosing) {
      this.#hasSurplus = true;
      return;
    }
    this.#held = bytes;
    // Reading goes on up to this size, because only a reading socket reports that the client has left.
    if (bytes.length >= MOST_HELD) this.#socket.pause();
  }

  /** The client has ended its side. */
  #ended(): void {
    const exchange = this.#exchange;
    if (exchange?.response.isEnded === false) exchange.breakOff();
    else if (exchange !== undefined || this.#reader.isBetween || this.#isUnreadable) this.#socket.end();
    else this.#refuse(new GatewayError('bad-request', 'The request ends within its head.'));
  }

  /** Refuses bytes that cannot be read. */
  #refuse(error: GatewayError): void {
    const exchange = this.#exchange;
    this.#isUnreadable = true;
    if (exchange === undefined) this.#refuseMessage(error);
    else if (exchange.hasLeft) this.#socket.destroy();
    else {
      this.refuseRest();
      exchange.cancellation.cancel(error);
    }
  }

  /** Refuses a message that never becomes an exchange. */
  #refuseMessage(error: GatewayError): void {
    if (this.#isClosing) return;
    this.refuseRest();
    this.#gateway.refuse(error, this.#socket, this.address).catch(this.#onError);
  }

  /** Refuses a head that is late, unless it arrived while the process was too busy to read it. */
  #refuseLate(): void {
    const begun = this.#begun;
    setImmediate(() => {
      if (this.#begun !== begun || this.#socket.destroyed) return;
      this.#refuse(new GatewayError('request-timeout', 'The request line and headers took too long.'));
    });
  }

  /** Closes an idle connection, unless a request arrived while the process was too busy to read it. */
  #expire(): void {
    const begun = this.#begun;
    setImmediate(() => {
      if (this.#begun === begun && this.isIdle) this.#socket.destroy();
    });
  }

  /** After an unexpected error the connection must not stay open, since nothing would serve it. */
  #abandon(error: unknown): void {
    this.destroy();
    reportError(error);
  }

  /** Ends the connection after its last response. */
  #end(exchange: ClientExchange): void {
    this.refuseRest();
    // Closing while bytes of the client are unread resets the connection, and the client can lose the response.
    const { isComplete, request } = exchange;
    if (!this.#hasSurplus && isComplete && request.refusal === undefined) this.#socket.destroySoon();
    else lingerOn(this.#socket.end());
  }

  /**
   * Ends the exchange when its request is complete and has been handled, and reads what came behind it: the next request
   * would find the permit of this one taken before.
   */
  #settle(): void {
    if (!this.#isHandled || this.#exchange?.isComplete !== true) return;
    this.#exchange = undefined;
    this.#awaitHead(false);
    if (this.#held.length === 0 || this.#socket.destroyed) return;
    const held = this.#held;
    this.#held = EMPTY;
    this.#receive(held);
    if (this.#held.length < MOST_HELD && !this.#awaitsReader) this.#socket.resume();
  }
}
