import type { IncomingHttpHeaders } from 'node:http';
import type { Dispatcher } from 'undici';
import { asGatewayError, GatewayError } from '../base/errors.ts';
import type { RawHeaders } from '../base/raw-headers.ts';
import type { BodyProof, ExchangeRequest, ExchangeResult } from '../handshake/exchange.ts';
import type { ResponseHandler } from '../handshake/response-handler.ts';
import type { ConnectionDispatchOptions } from './connection.ts';
import { isConnectionLost, upstreamError } from './network-error.ts';

/** Bounds for reading the body of a 401 so that its connection can be used again: bytes … */
const DRAIN_LIMIT = 64 * 1024;
/** … and milliseconds. */
const DRAIN_TIME = 1_000;
const EMPTY = Buffer.alloc(0);

/**
 * Sends one request over a connection of undici: `Exchange`. Errors of undici and of the connection are told apart
 * here; an error that `onHead` or the response handler throws is never taken for one of them.
 * @throws GatewayError when there is no response, or when it broke off; the reason of the cancellation
 */
export function exchange(
  dispatcher: Dispatcher,
  request: ExchangeRequest,
  handler: ResponseHandler,
): Promise<ExchangeResult> {
  return new Promise((resolve, reject) => {
    const { method, target: path, headers, body, cancellation, freshConnection = false } = request;
    if (cancellation.reason !== undefined) {
      reject(cancellation.reason);
      return;
    }
    const exchanging = new ExchangeHandler(request, handler, resolve, reject);
    const options = { method, path, headers, body, freshConnection };
    try {
      dispatcher.dispatch(options as ConnectionDispatchOptions, exchanging);
    } catch (error) {
      exchanging.fail(asGatewayError(error));
    }
  });
}

class ExchangeHandler implements Dispatcher.DispatchHandler {
  readonly #request: ExchangeRequest;
  readonly #handler: ResponseHandler;
  readonly #resolve: (result: ExchangeResult) => void;
  readonly #reject: (error: GatewayError) => void;
  #status = 0;
  #challenge: ExchangeResult | undefined;
  #drained = 0;
  #drainTimer: NodeJS.Timeout | undefined;
  #proof: BodyProof | undefined;
  #held: Buffer = EMPTY;

  constructor(
    request: ExchangeRequest,
    handler: ResponseHandler,
    resolve: (result: ExchangeResult) => void,
    reject: (error: GatewayError) => void,
  ) {
    this.#request = request;
    this.#handler = handler;
    this.#resolve = resolve;
    this.#reject = reject;
    // A request that waits in the pool's queue is not on a connection yet: it is given up in
    // onRequestStart, and the client need not wait for that.
    request.cancellation.onCancel(reject);
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#request.cancellation.onCancel((reason) => {
      this.#reject(reason);
      controller.abort(reason);
    });
  }

  onResponseStart(
    controller: Dispatcher.DispatchController,
    status: number,
    headers: IncomingHttpHeaders,
    reason = '',
  ): void {
    try {
      this.#start(controller, status, headers, reason);
    } catch (error) {
      throw asGatewayError(error);
    }
  }

  #start(
    controller: Dispatcher.DispatchController,
    status: number,
    headers: IncomingHttpHeaders,
    reason: string,
  ): void {
    if (status < 200) {
      this.#handler.information(status, flatText(controller.rawHeaders));
      return;
    }
    this.#status = status;
    if (status === 401) {
      this.#challenge = {
        kind: 'challenged',
        challenges: fieldLines(headers['www-authenticate']),
        setCookies: fieldLines(headers['set-cookie']),
        date: headers.date,
      };
      this.#drainTimer = setTimeout(() => this.#endDrain(controller), DRAIN_TIME);
      return;
    }
    this.#proof = this.#request.onHead(status, fieldLines(headers['authentication-info']));
    this.#handler.head(status, reason, flatText(controller.rawHeaders));
    this.#handler.onDrain(() => this.#resume(controller));
  }

  /** Called by the client's connection: an error of undici's parser must not go there. */
  #resume(controller: Dispatcher.DispatchController): void {
    try {
      controller.resume();
    } catch (error) {
      controller.abort(asGatewayError(error));
    }
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    try {
      this.#take(controller, chunk);
    } catch (error) {
      throw asGatewayError(error);
    }
  }

  #take(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (this.#challenge !== undefined) {
      this.#drained += chunk.length;
      if (this.#drained > DRAIN_LIMIT) this.#endDrain(controller);
      return;
    }
    if (!this.#handler.data(this.#proof === undefined ? chunk : this.#prove(chunk))) controller.pause();
  }

  onResponseEnd(controller: Dispatcher.DispatchController): void {
    if (this.#challenge !== undefined) {
      this.#finish(this.#challenge);
      return;
    }
    try {
      this.#proof?.finish();
      if (this.#held.length > 0) this.#handler.data(this.#held);
      this.#handler.end(flatText(controller.rawTrailers));
    } catch (error) {
      this.fail(asGatewayError(error));
      return;
    }
    this.#finish({ kind: 'answered', status: this.#status });
  }

  onResponseError(_controller: Dispatcher.DispatchController, error: Error): void {
    const givenUp = this.#request.cancellation.reason !== undefined;
    if (this.#challenge !== undefined && !givenUp) {
      this.#finish(this.#challenge);
    } else if (this.#status === 0 && !givenUp && isConnectionLost(error)) {
      this.#finish({ kind: 'lost', error: upstreamError(error) });
    } else {
      this.fail(upstreamError(error));
    }
  }

  /** The challenge is in the head: a body that does not end need not be waited for. Closes the connection. */
  #endDrain(controller: Dispatcher.DispatchController): void {
    controller.abort(new GatewayError('upstream-protocol', 'The body of a 401 does not end.'));
  }

  /** Holds the last piece back until the proof is checked: with it the client would have the whole response. */
  #prove(chunk: Buffer): Buffer {
    const before = this.#held;
    this.#proof?.update(chunk);
    this.#held = chunk;
    return before;
  }

  #finish(result: ExchangeResult): void {
    clearTimeout(this.#drainTimer);
    this.#request.cancellation.onCancel(undefined);
    this.#resolve(result);
  }

  fail(error: GatewayError): void {
    clearTimeout(this.#drainTimer);
    this.#request.cancellation.onCancel(undefined);
    this.#reject(error);
  }
}

/** undici gives header names and values as bytes; on the wire they are Latin-1. */
function flatText(raw: Dispatcher.DispatchController['rawHeaders']): RawHeaders {
  if (!Array.isArray(raw)) return [];
  return raw.map((item) => (typeof item === 'string' ? item : item.toString('latin1')));
}

function fieldLines(value: string | string[] | undefined): readonly string[] {
  if (value === undefined) return [];
  return typeof value === 'string' ? [value] : value;
}
