import type { Cancellable } from '../base/cancellation.ts';
import type { ErrorCode, GatewayError } from '../base/errors.ts';
import type { RawHeaders } from '../base/raw-headers.ts';
import type { Message } from '../handshake/exchange.ts';
import type { Lost, ResponseSource, UpstreamResponse } from '../handshake/response.ts';
import { brokenInBody, isConnectionLost, upstreamError } from './errors.ts';
import type { FairQueue, Queued } from './fair-queue.ts';
import type { ResponseReceiver } from './response-reader.ts';

/** How far an exchange is: `responding` from the first byte of the response on. */
export type ExchangeProgress = 'unsent' | 'sent' | 'responding';

/** Observes the results of all exchanges with one upstream. */
export interface ExchangeObserver {
  /** The head of a response came. `client`: of the request; empty: the gateway itself. */
  responded(status: number, client: string): void;
  /**
   * The exchange failed through the upstream or the network, before the head came. `sent`: the upstream may have got
   * the request.
   */
  failed(error: GatewayError, sent: boolean, client: string): void;
}

/**
 * How long an attempt is awaited whose client has left, in milliseconds: only its response shows whether the upstream
 * refused it. Unseen refusals would be repeated without end, until the upstream locks the account out.
 */
const UNSEEN_MS = 1_000;

/** Codes of errors that are the fault of the upstream or the network, not of a client, a response or the gateway. */
const FAULTS: ReadonlySet<ErrorCode> = new Set(['upstream-unreachable', 'upstream-tls', 'upstream-timeout']);

/** One message: it waits for a connection, goes out on one, and its response is returned at the head. */
export class UpstreamExchange implements ResponseReceiver, Queued<UpstreamExchange>, Cancellable {
  readonly message: Message;
  readonly client: string;
  /** When it began to wait; undefined: it found a connection that it can have. */
  waitingSince: number | undefined;
  previous: UpstreamExchange | undefined;
  next: UpstreamExchange | undefined;
  readonly #waiting: FairQueue<UpstreamExchange>;
  readonly #observer: ExchangeObserver;
  readonly #settled = Promise.withResolvers<UpstreamResponse | Lost>();
  /** Its response at the head, or that there is none. */
  readonly result = this.#settled.promise;
  /** That it was put on; undefined: it waits for one, or has ended. */
  connection: ResponseSource | undefined;
  progress: ExchangeProgress = 'unsent';
  /** True if its connection was idle before it. */
  isReused = false;
  /** True while its body, which is not kept, is being sent. */
  isSendingBody = false;
  /** Undefined until its head came. */
  response: UpstreamResponse | undefined;
  /** Ends it some time after its client has left; undefined: it has not. */
  #leaving: NodeJS.Timeout | undefined;

  /** @param waiting the exchanges that wait for a connection, to which it adds itself */
  constructor(message: Message, waiting: FairQueue<UpstreamExchange>, observer: ExchangeObserver) {
    this.message = message;
    this.client = message.request.client;
    this.#waiting = waiting;
    this.#observer = observer;
    waiting.add(this);
    message.request.cancellation.add(this);
  }

  /** The request was cancelled. */
  cancel(reason: GatewayError): void {
    const isOpenAttempt =
      this.message.answers !== undefined && this.progress !== 'unsent' && this.response === undefined;
    if (reason.code !== 'client-closed' || !isOpenAttempt) this.#giveUp(reason);
    else this.#leaving = setTimeout(() => this.#giveUp(reason), UNSEEN_MS).unref();
  }

  /** True if its client has left, and it is awaited all the same. */
  get isLeft(): boolean {
    return this.#leaving !== undefined;
  }

  #giveUp(reason: GatewayError): void {
    const { connection } = this;
    this.#waiting.remove(this);
    connection?.abandon();
    if (connection !== undefined) this.#observe(reason);
    this.#fail(reason);
  }

  onInformation(status: number, headers: RawHeaders): void {
    this.message.request.interim?.information(status, headers);
  }

  onHead(response: UpstreamResponse): void {
    this.#observer.responded(response.status, this.client);
    this.response = response;
    this.#settled.resolve(response);
  }

  /** The connection failed, or was not made. */
  onConnectionError(thrown: unknown): void {
    const { progress, isReused } = this;
    const error = upstreamError(thrown);
    const broke = isConnectionLost(thrown);
    const sent = progress === 'sent';
    if (progress === 'responding' || (sent && !broke) || error.code === 'internal-error') {
      this.onError(error);
      return;
    }
    // An upstream that refuses a body and closes at once resets the connection, and its response can be lost.
    const isRefusal = sent && this.isSendingBody;
    if (!isRefusal) this.#observe(error);
    const reason = isRefusal ? brokenInBody(thrown) : error;
    this.#lose({ kind: 'lost', error: reason, broke, sent, reused: isReused });
  }

  /** The rest of an earlier response came in place of its own: the upstream may not have read the request yet. */
  onForeign(error: GatewayError): void {
    this.#lose({ kind: 'lost', error, broke: true, sent: true, reused: true });
  }

  /** The exchange, which has no connection yet, gets none. */
  refuse(error: GatewayError): void {
    this.#lose({ kind: 'lost', error, broke: false, sent: false, reused: false });
  }

  /** The exchange ends without a whole response. */
  onError(error: GatewayError): void {
    this.#observe(error);
    this.#fail(error);
  }

  /** The head is the verdict: a stream in which nothing comes for a while must not keep requests from the upstream. */
  #observe(error: GatewayError): void {
    if (this.response === undefined && FAULTS.has(error.code))
      this.#observer.failed(error, this.progress !== 'unsent', this.client);
  }

  #lose(lost: Lost): void {
    this.release();
    this.#settled.resolve(lost);
  }

  #fail(error: GatewayError): void {
    this.release();
    if (this.response === undefined) this.#settled.reject(error);
    else this.response.fail(error);
  }

  /** It has ended; also called by its connection when its response has been read whole, or was abandoned. */
  release(): void {
    // The connection may be another exchange's from now on.
    this.connection = undefined;
    if (this.#leaving !== undefined) clearTimeout(this.#leaving);
    this.message.request.cancellation.remove(this);
  }
}
