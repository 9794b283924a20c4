import { asGatewayError, type ErrorCode, type GatewayError } from '../base/errors.ts';
import { fieldValue, fieldValues, type RawHeaders } from '../base/raw-headers.ts';
import type { BodyProof, ExchangeRequest, ExchangeResult } from '../handshake/exchange.ts';
import type { ResponseHandler } from '../handshake/response-handler.ts';
import type { FairQueue, Queued } from './fair-queue.ts';
import { isConnectionLost, upstreamError } from './network-error.ts';
import type { ResponseReceiver } from './response-reader.ts';

/** Bounds for reading the body of a 401 so that its connection can be used again: bytes … */
const DRAIN_LIMIT = 64 * 1024;
/** … and milliseconds. */
const DRAIN_TIME = 1_000;
const EMPTY = Buffer.alloc(0);

/** How far the exchange on a connection is: `responding` from the first byte of the response on. */
export type ExchangeProgress = 'unsent' | 'sent' | 'responding';

/** The connection that an exchange is on. */
export interface ExchangeConnection {
  readonly progress: ExchangeProgress;
  /** True if the connection was idle before this exchange. */
  readonly isReused: boolean;
  /** The exchange needs nothing more of the response. Closes the connection unless it is still being made. */
  abandon(): void;
  /** Stops reading until `resume`. */
  pause(): void;
  resume(): void;
}

/** Is told of the results of all exchanges with one upstream. */
export interface ExchangeObserver {
  /** The head of a response came. */
  responded(status: number): void;
  /** The exchange failed through the upstream or the network, before the head came. `sent`: the upstream may have got the request. */
  failed(error: GatewayError, sent: boolean): void;
}

/** Codes of errors that are the fault of the upstream or the network, not of a client, a response or the gateway. */
const FAULTS: ReadonlySet<ErrorCode> = new Set(['upstream-unreachable', 'upstream-tls', 'upstream-timeout']);

/** One request and what becomes of it: it waits for a connection, goes out on one, and receives its response. */
export class UpstreamExchange implements ResponseReceiver, Queued<UpstreamExchange> {
  readonly request: ExchangeRequest;
  readonly client: string;
  /** When it began to wait; undefined: it found a connection that it can have. */
  waitingSince: number | undefined;
  previous: UpstreamExchange | undefined;
  next: UpstreamExchange | undefined;
  readonly #handler: ResponseHandler;
  readonly #waiting: FairQueue<UpstreamExchange>;
  readonly #observer: ExchangeObserver;
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
    waiting: FairQueue<UpstreamExchange>,
    observer: ExchangeObserver,
    resolve: (result: ExchangeResult) => void,
    reject: (error: GatewayError) => void,
  ) {
    this.request = request;
    this.client = request.client;
    this.#handler = handler;
    this.#waiting = waiting;
    this.#observer = observer;
    this.#resolve = resolve;
    this.#reject = reject;
    waiting.add(this);
    request.cancellation.onCancel((reason) => {
      const connection = this.#connection;
      this.#leave();
      if (connection !== undefined) this.#observe(reason, connection.progress);
      this.#fail(reason);
    });
  }

  /** It was taken from the queue for this connection. */
  enter(connection: ExchangeConnection): void {
    this.#connection = connection;
  }

  /** True if the response is a 401. */
  get isChallenged(): boolean {
    return this.#challenge !== undefined;
  }

  onInformation(status: number, headers: RawHeaders): void {
    this.#handler.information(status, headers);
  }

  onHead(status: number, reason: string, headers: RawHeaders, isHttp11: boolean): void {
    this.#status = status;
    this.#observer.responded(status);
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
    this.#handler.head(status, reason, headers, isHttp11);
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
  onConnectionError(thrown: unknown, { progress, isReused }: ExchangeConnection): void {
    const error = upstreamError(thrown);
    const broke = isConnectionLost(thrown);
    const sent = progress === 'sent';
    if (progress === 'responding' || (sent && !broke) || error.code === 'internal-error') {
      this.onError(error, progress);
      return;
    }
    this.#observe(error, progress);
    this.#finish({ kind: 'lost', error, broke, sent, reused: isReused });
  }

  /** The exchange, which has no connection yet, gets none. */
  refuse(error: GatewayError): void {
    this.#finish({ kind: 'lost', error, broke: false, sent: false, reused: false });
  }

  /** The exchange ends without a whole response. */
  onError(error: GatewayError, progress: ExchangeProgress): void {
    if (this.#challenge === undefined) {
      this.#observe(error, progress);
      this.#fail(error);
    } else {
      this.#finish(this.#challenge);
    }
  }

  /** The head is the verdict: a stream in which nothing comes for a while must not keep requests from the upstream. */
  #observe(error: GatewayError, progress: ExchangeProgress): void {
    if (this.#status === 0 && FAULTS.has(error.code)) this.#observer.failed(error, progress !== 'unsent');
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
