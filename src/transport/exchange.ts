import { asGatewayError, type GatewayError } from '../base/errors.ts';
import type { Linked, LinkedQueue } from '../base/linked-queue.ts';
import { fieldValue, fieldValues, type RawHeaders } from '../base/raw-headers.ts';
import type { BodyProof, ExchangeRequest, ExchangeResult } from '../handshake/exchange.ts';
import type { ResponseHandler } from '../handshake/response-handler.ts';
import { isConnectionLost, upstreamError } from './network-error.ts';
import type { ResponseReceiver } from './response-reader.ts';

/** Bounds for reading the body of a 401 so that its connection can be used again: bytes … */
const DRAIN_LIMIT = 64 * 1024;
/** … and milliseconds. */
const DRAIN_TIME = 1_000;
const EMPTY = Buffer.alloc(0);

/** The connection that an exchange is on. */
export interface ExchangeConnection {
  /** The exchange needs nothing more of the response. Closes the connection unless it is still being made. */
  abandon(): void;
  /** Stops reading until `resume`. */
  pause(): void;
  resume(): void;
}

/** One request and what becomes of it: it waits for a connection, goes out on one, and receives its response. */
export class UpstreamExchange implements ResponseReceiver, Linked<UpstreamExchange> {
  readonly request: ExchangeRequest;
  previous: UpstreamExchange | undefined;
  next: UpstreamExchange | undefined;
  readonly #handler: ResponseHandler;
  readonly #waiting: LinkedQueue<UpstreamExchange>;
  readonly #resolve: (result: ExchangeResult) => void;
  readonly #reject: (error: GatewayError) => void;
  #connection: ExchangeConnection | undefined;
  #status = 0;
  #challenge: ExchangeResult | undefined;
  #drained = 0;
  #drainTimer: NodeJS.Timeout | undefined;
  #proof: BodyProof | undefined;
  #held: Buffer = EMPTY;

  /** @param waiting the exchanges that wait for a connection, to which it adds itself */
  constructor(
    request: ExchangeRequest,
    handler: ResponseHandler,
    waiting: LinkedQueue<UpstreamExchange>,
    resolve: (result: ExchangeResult) => void,
    reject: (error: GatewayError) => void,
  ) {
    this.request = request;
    this.#handler = handler;
    this.#waiting = waiting;
    this.#resolve = resolve;
    this.#reject = reject;
    waiting.add(this);
    request.cancellation.onCancel((reason) => {
      this.#leave();
      this.#fail(reason);
    });
  }

  /** Goes from the queue to a connection. */
  enter(connection: ExchangeConnection): void {
    this.#waiting.remove(this);
    this.#connection = connection;
  }

  onInformation(status: number, headers: RawHeaders): void {
    this.#handler.information(status, headers);
  }

  onHead(status: number, reason: string, headers: RawHeaders): void {
    this.#status = status;
    if (status === 401) {
      this.#challenge = {
        kind: 'challenged',
        challenges: fieldValues(headers, 'www-authenticate'),
        setCookies: fieldValues(headers, 'set-cookie'),
        date: fieldValue(headers, 'date'),
      };
      this.#drainTimer = setTimeout(() => this.#endDrain(), DRAIN_TIME);
      return;
    }
    this.#proof = this.request.onHead(status, fieldValues(headers, 'authentication-info'));
    this.#handler.head(status, reason, headers);
    this.#handler.onDrain(() => this.#connection?.resume());
  }

  onData(chunk: Buffer): void {
    if (this.#challenge !== undefined) {
      this.#drained += chunk.length;
      if (this.#drained > DRAIN_LIMIT) this.#endDrain();
      return;
    }
    if (!this.#handler.data(this.#proof === undefined ? chunk : this.#prove(chunk)))
      this.#connection?.pause();
  }

  /** The response was read whole: an error of the proof or the handler ends the exchange, not the connection. */
  onEnd(trailers: RawHeaders): void {
    if (this.#challenge !== undefined) {
      this.#finish(this.#challenge);
      return;
    }
    try {
      this.#proof?.finish();
      if (this.#held.length > 0) this.#handler.data(this.#held);
      this.#handler.end(trailers);
      this.#finish({ kind: 'answered', status: this.#status });
    } catch (error) {
      this.#fail(asGatewayError(error));
    }
  }

  /** The connection failed, or was not made. */
  onConnectionError(error: unknown): void {
    if (this.#challenge === undefined && this.#status === 0 && isConnectionLost(error)) {
      this.#finish({ kind: 'lost', error: upstreamError(error) });
    } else {
      this.onError(upstreamError(error));
    }
  }

  /** The exchange ends without a whole response. */
  onError(error: GatewayError): void {
    if (this.#challenge === undefined) this.#fail(error);
    else this.#finish(this.#challenge);
  }

  /** The challenge is in the head: a body that does not end need not be waited for. */
  #endDrain(): void {
    this.#leave();
    if (this.#challenge !== undefined) this.#finish(this.#challenge);
  }

  /** Holds the last piece back until the proof is checked: with it the client would have the whole response. */
  #prove(chunk: Buffer): Buffer {
    const before = this.#held;
    this.#proof?.update(chunk);
    this.#held = chunk;
    return before;
  }

  #leave(): void {
    this.#waiting.remove(this);
    this.#connection?.abandon();
  }

  #finish(result: ExchangeResult): void {
    this.#release();
    this.#resolve(result);
  }

  #fail(error: GatewayError): void {
    this.#release();
    this.#reject(error);
  }

  #release(): void {
    // The connection may be another exchange's from now on.
    this.#connection = undefined;
    clearTimeout(this.#drainTimer);
    this.request.cancellation.onCancel(undefined);
  }
}
