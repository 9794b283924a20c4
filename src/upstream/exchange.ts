import type { IncomingHttpHeaders } from 'node:http';
import type { Dispatcher } from 'undici';
import type { Cancellation } from '../base/cancellation.ts';
import { asGatewayError, GatewayError } from '../base/errors.ts';
import type { TracedWork } from '../tracing/tracing.ts';
import type { ConnectionDispatchOptions } from './connection.ts';
import { isConnectionLost, upstreamError } from './faults.ts';
import type { AnswerSink } from './sink.ts';

/** How much of a 401's body is read so that its connection can be used again, in bytes … */
const DRAIN_LIMIT = 64 * 1024;
/** … and for how long, in milliseconds. */
const DRAIN_TIME = 1_000;
const EMPTY = Buffer.alloc(0);

/** Checks an answer's body while it passes. */
export interface BodyProof {
  update(chunk: Buffer): void;
  /** @throws GatewayError when the body is not what the upstream vouched for */
  finish(): void;
}

export interface ExchangeRequest {
  readonly method: string;
  /** The request target, byte for byte. */
  readonly target: string;
  readonly headers: readonly string[];
  readonly body: Buffer | AsyncIterable<Buffer> | null;
  readonly cancellation: Cancellation;
  /** True: goes out on a new connection. Left out or false: on one that is open, if there is one. */
  readonly freshConnection?: boolean;
  /** What it is part of; undefined: nothing is traced. */
  readonly trace: TracedWork | undefined;
  /**
   * Sees the status and the Authentication-Info of an answer that is no 401, before the sink does.
   * @throws GatewayError when the answer must not go further
   */
  readonly onHead: (status: number, authenticationInfo: readonly string[]) => BodyProof | undefined;
}

export type ExchangeResult =
  /** The answer went to the sink, whole. */
  | { readonly kind: 'answered'; readonly status: number }
  /** A 401. Its body was read, or the connection closed. Nothing reached the sink. */
  | {
      readonly kind: 'challenged';
      readonly challenges: readonly string[];
      readonly setCookies: readonly string[];
      /** When it was made, as its Date says; undefined: it says nothing. */
      readonly date: string | undefined;
    }
  /** The connection broke before any answer came. Nothing reached the sink. */
  | { readonly kind: 'lost'; readonly error: GatewayError };

/**
 * One request to the upstream and what came back. Errors of undici and of the connection are told apart here, and what
 * `onHead` or the sink throws is never taken for one of them.
 * @throws GatewayError when there is no answer, or when it broke off; the reason of the cancellation
 */
export function exchange(
  dispatcher: Dispatcher,
  request: ExchangeRequest,
  sink: AnswerSink,
): Promise<ExchangeResult> {
  return new Promise((resolve, reject) => {
    const { method, target: path, headers, body, cancellation, freshConnection = false } = request;
    if (cancellation.reason !== undefined) {
      reject(cancellation.reason);
      return;
    }
    const handler = new Exchange(request, sink, resolve, reject);
    const options = { method, path, headers, body, freshConnection };
    try {
      dispatcher.dispatch(options as ConnectionDispatchOptions, handler);
    } catch (error) {
      handler.fail(asGatewayError(error));
    }
  });
}

class Exchange implements Dispatcher.DispatchHandler {
  readonly #request: ExchangeRequest;
  readonly #sink: AnswerSink;
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
    sink: AnswerSink,
    resolve: (result: ExchangeResult) => void,
    reject: (error: GatewayError) => void,
  ) {
    this.#request = request;
    this.#sink = sink;
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
      this.#sink.information(status, flatText(controller.rawHeaders));
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
    this.#sink.head(status, reason, flatText(controller.rawHeaders));
    this.#sink.onDrain(() => this.#resume(controller));
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
    if (!this.#sink.data(this.#proof === undefined ? chunk : this.#prove(chunk))) controller.pause();
  }

  onResponseEnd(controller: Dispatcher.DispatchController): void {
    if (this.#challenge !== undefined) {
      this.#finish(this.#challenge);
      return;
    }
    try {
      this.#proof?.finish();
      if (this.#held.length > 0) this.#sink.data(this.#held);
      this.#sink.end(flatText(controller.rawTrailers));
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

  /** Holds the last piece back until the proof is checked: with it the client would have the whole answer. */
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

type RawHeaders = Dispatcher.DispatchController['rawHeaders'];

/** undici gives header names and values as bytes; on the wire they are Latin-1. */
function flatText(raw: RawHeaders): string[] {
  if (!Array.isArray(raw)) return [];
  return raw.map((item) => (typeof item === 'string' ? item : item.toString('latin1')));
}

function fieldLines(value: string | string[] | undefined): readonly string[] {
  if (value === undefined) return [];
  return typeof value === 'string' ? [value] : value;
}
