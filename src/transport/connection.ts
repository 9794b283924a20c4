import type { IncomingHttpHeaders } from 'node:http';
import { type buildConnector, Client, type Dispatcher } from 'undici';
import { ResponseHeads } from './response-heads.ts';

/** Trailer fields that say something about the connection or the framing, which RFC 9110 §6.5.1 forbids. */
const CONNECTION_FIELDS = [
  'connection',
  'proxy-connection',
  'keep-alive',
  'upgrade',
  'content-length',
  'transfer-encoding',
];

export interface ConnectionDispatchOptions extends Dispatcher.DispatchOptions {
  /** True if a connection that has been used before is replaced by a new one. */
  readonly freshConnection?: boolean;
}

/** The heads of the responses on the socket that is open, if one is. */
interface Wire {
  heads: ResponseHeads | undefined;
}

/** One connection of a pool: carries one exchange at a time, and connects again after it was closed. */
export class Connection extends Client {
  readonly #wire: Wire;

  constructor(origin: URL, options: Client.Options, connect: buildConnector.connector) {
    const wire: Wire = { heads: undefined };
    super(origin, {
      ...options,
      connect: (target, callback) =>
        connect(target, (...result) => {
          if (result[0] === null) wire.heads = new ResponseHeads(result[1]);
          callback(...result);
        }),
    });
    this.#wire = wire;
  }

  override dispatch(options: ConnectionDispatchOptions, handler: Dispatcher.DispatchHandler): boolean {
    const { heads } = this.#wire;
    if (options.freshConnection === true && heads?.isIdle === true) heads.close();
    return super.dispatch(options, new CheckedHandler(handler, this.#wire));
  }
}

/** Tells `ResponseHeads` where an exchange begins and ends, and a response that broke off from a whole one. */
class CheckedHandler implements Dispatcher.DispatchHandler {
  readonly #handler: Dispatcher.DispatchHandler;
  readonly #wire: Wire;
  #heads: ResponseHeads | undefined;
  /** True if the end of the connection is the end of the response. */
  #endsWithConnection = false;

  constructor(handler: Dispatcher.DispatchHandler, wire: Wire) {
    this.#handler = handler;
    this.#wire = wire;
  }

  onRequestStart(controller: Dispatcher.DispatchController, context: unknown): void {
    this.#heads = this.#wire.heads;
    this.#heads?.begin();
    this.#handler.onRequestStart?.(controller, context);
  }

  onBodySent(chunk: Buffer): void {
    this.#heads?.sent();
    this.#handler.onBodySent?.(chunk);
  }

  onRequestSent(): void {
    this.#heads?.sent();
    this.#handler.onRequestSent?.();
  }

  onResponseStart(
    controller: Dispatcher.DispatchController,
    status: number,
    headers: IncomingHttpHeaders,
    reason?: string,
  ): void {
    this.#endsWithConnection =
      headers['content-length'] === undefined && headers['transfer-encoding'] === undefined;
    this.#handler.onResponseStart?.(controller, status, headers, reason);
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    this.#handler.onResponseData?.(controller, chunk);
  }

  onResponseEnd(controller: Dispatcher.DispatchController, trailers: IncomingHttpHeaders): void {
    this.#heads?.end();
    // undici takes a reset for the end of such a response (RFC 9112 §8).
    const broken = this.#endsWithConnection ? this.#heads?.broken : undefined;
    if (broken !== undefined) {
      this.#handler.onResponseError?.(controller, broken);
      return;
    }
    // undici uses the connection again, but its parser refuses the next response.
    const hasTrailers = controller.rawTrailers?.length !== 0;
    if (hasTrailers && CONNECTION_FIELDS.some((name) => trailers[name] !== undefined)) this.#heads?.close();
    this.#handler.onResponseEnd?.(controller, trailers);
  }

  onResponseError(controller: Dispatcher.DispatchController, error: Error): void {
    this.#heads?.end();
    this.#handler.onResponseError?.(controller, error);
  }
}
