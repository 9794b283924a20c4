import type { Cancellation } from '../base/cancellation.ts';
import type { GatewayError } from '../base/errors.ts';
import type { RawHeaders } from '../base/raw-headers.ts';
import type { Nonce } from '../challenges/nonce.ts';
import type { TracedWork } from '../tracing/tracing.ts';
import type { AttemptBudget } from './attempt-budget.ts';
import type { Lost, UpstreamResponse } from './response.ts';

/** One request as it goes over the wire. */
export interface Message {
  readonly method: string;
  /** The request target, byte for byte. */
  readonly target: string;
  readonly headers: RawHeaders;
  readonly body: Buffer | AsyncIterable<Buffer> | null;
  /** Undefined: it is sent without authentication. */
  readonly answers?: AnsweredNonce | undefined;
}

/** The nonce that a message answers, and its count. */
export interface AnsweredNonce {
  readonly nonce: Nonce;
  readonly nc: number;
}

/** Returns the error that refuses a request now; undefined: it may go out. */
export type Refusal = () => GatewayError | undefined;

/** A credential by name, and which of those that it had. */
export interface CredentialUsed {
  readonly name: string;
  readonly version: string;
}

/** Facts of all exchanges of one client request, for its record and the metrics. */
export interface ExchangeFacts {
  /** Exchanges so far. */
  attempts: number;
  /** When the first one began, in milliseconds. */
  firstAttemptAt: number;
  /** When the last one began. */
  lastAttemptAt: number;
  /** When the request first left for the upstream, in milliseconds; undefined: it has not. */
  leftAt: number | undefined;
  /** Time that its exchanges waited for new connections, in milliseconds. */
  connectMs: number;
  /** True if the upstream asked for authentication. */
  challenged: boolean;
  /** Of the last exchange; undefined: there was none. */
  credential: CredentialUsed | undefined;
  /** Host and port of the last exchange. */
  upstreamAddress: string;
  /** The local address, where several are configured; otherwise empty. */
  egress: string;
  /** Number of the request in the flight recorder; 0: it is not recorded. */
  flightRequest: number;
}

/** Receives the interim responses (1xx) to a request, of which there may be several, before its response. */
export interface InterimReceiver {
  information(status: number, headers: RawHeaders): void;
}

/** The settings of a request that are the same for each of its exchanges. */
export interface ExchangeOptions {
  /** Id of the client that it is for; empty: the gateway itself, for a probe or a renewal. */
  readonly client: string;
  /** True: it may take any time, as a stream does, which says nothing about other requests. */
  readonly noTotalTimeout?: boolean | undefined;
  /** Asked when the request leaves the queue for a connection; left out: it goes out. */
  readonly refusal?: Refusal | undefined;
  /** Of the client request that it is for; left out: there is none. */
  readonly facts?: ExchangeFacts | undefined;
  /** Left out: interim responses are dropped. */
  readonly interim?: InterimReceiver | undefined;
}

/** A request that is to be authenticated, its body received as far as it can be kept. */
export interface UpstreamRequest extends ExchangeOptions {
  readonly method: string;
  /** The request target, byte for byte. */
  readonly target: string;
  readonly headers: RawHeaders;
  readonly body: RequestBody;
  readonly cancellation: Cancellation;
  /** Bounds its exchanges. */
  readonly budget: AttemptBudget;
  /** Span of the client request; undefined: not traced. */
  readonly trace: TracedWork | undefined;
}

/** A request body: none; kept in memory, so that it can be sent again after a 401; or streamed, once only. */
export type RequestBody =
  | { readonly kind: 'none'; readonly content: null }
  | { readonly kind: 'kept'; readonly content: Buffer }
  | {
      readonly kind: 'streamed';
      readonly content: AsyncIterable<Buffer>;
      /** True if it would have been kept if there had been memory for it. */
      readonly spilled: boolean;
    };

export const NO_BODY = { kind: 'none', content: null } as const satisfies RequestBody;

export interface ExchangeRequest extends Message, ExchangeOptions {
  readonly cancellation: Cancellation;
  /** True: goes out on a new connection. Left out or false: on one that is open, if there is one. */
  readonly freshConnection?: boolean;
}

/**
 * Sends one request and returns its response at the head: over the connections of an upstream, or as a CONNECT to a
 * proxy.
 * @throws GatewayError when there is no response; the reason of the cancellation
 */
export type Exchange = (request: ExchangeRequest) => Promise<UpstreamResponse | Lost>;
