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

export interface ExchangeRequest extends Message {
  readonly cancellation: Cancellation;
  /** True: goes out on a new connection. Left out or false: on one that is open, if there is one. */
  readonly freshConnection?: boolean;
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
  /** The connection broke before any response came. The response handler got nothing. */
  | { readonly kind: 'lost'; readonly error: GatewayError };

/**
 * Sends one request and hands its response on: over the connections of an upstream, or as a CONNECT to a proxy.
 * @throws GatewayError when there is no response, or when it broke off; the reason of the cancellation
 */
export type Exchange = (request: ExchangeRequest, handler: ResponseHandler) => Promise<ExchangeResult>;
