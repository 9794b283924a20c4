import type { Cancellation } from '../base/cancellation.ts';
import type { GatewayError } from '../base/errors.ts';
import type { RawHeaders } from '../base/raw-headers.ts';
import type { ResponseHandler } from './response-handler.ts';

/** One request as it goes over the wire. */
export interface Message {
  readonly method: string;
  /** The request target, byte for byte. */
  readonly target: string;
  readonly headers: RawHeaders;
  readonly body: Buffer | AsyncIterable<Buffer> | null;
}

/** Returns the error that refuses a request now; undefined: it may go out. */
export type Refusal = () => GatewayError | undefined;

/** When a client request first left for the upstream, in milliseconds; undefined: it has not. */
export interface Departure {
  leftAt: number | undefined;
}

export interface ExchangeRequest extends Message {
  /** Id of the client that it is for; empty: the gateway itself, for a probe or a renewal. */
  readonly client: string;
  readonly cancellation: Cancellation;
  /** True: goes out on a new connection. Left out or false: on one that is open, if there is one. */
  readonly freshConnection?: boolean;
  /** True: it may take any time, as a stream does, which says nothing about other requests. */
  readonly noTotalTimeout?: boolean | undefined;
  /** Asked when the request leaves the queue for a connection; left out: it goes out. */
  readonly refusal?: Refusal | undefined;
  /** Of the client request that it is for; left out: there is none. */
  readonly departure?: Departure | undefined;
  /**
   * Sees the status and the Authentication-Info of a response that is no 401, before the response handler does.
   * @throws GatewayError when the response must not go further
   */
  readonly onHead: (status: number, authenticationInfo: readonly string[]) => BodyProof | undefined;
}

/** Checks a response's body while it passes. */
export interface BodyProof {
  update(chunk: Buffer): void;
  /** @throws GatewayError when the body is not the one that the upstream vouched for */
  finish(): void;
}

export type ExchangeResult =
  /** The response handler got the whole response. */
  | { readonly kind: 'answered'; readonly status: number }
  /** A 401. Its body was read, or the connection closed. The response handler got nothing. */
  | {
      readonly kind: 'challenged';
      readonly challenges: readonly string[];
      readonly setCookies: readonly string[];
      /** The Date field; undefined: it is missing. */
      readonly date: string | undefined;
    }
  | Lost;

/** There was no connection, or it broke before the first byte of a response. The response handler got nothing. */
export interface Lost {
  readonly kind: 'lost';
  readonly error: GatewayError;
  /** True if the connection broke; false if it could not be made. */
  readonly broke: boolean;
  /** True if bytes of the request may have reached the upstream. */
  readonly sent: boolean;
  /** True if the connection had been idle: the upstream may have closed it before the request came. */
  readonly reused: boolean;
}

/**
 * Sends one request and hands its response on: over the connections of an upstream, or as a CONNECT to a proxy.
 * @throws GatewayError when there is no response, or when it broke off; the reason of the cancellation
 */
export type Exchange = (request: ExchangeRequest, handler: ResponseHandler) => Promise<ExchangeResult>;
