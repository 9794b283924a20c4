import type { Cancellation } from '../base/cancellation.ts';
import type { GatewayError } from '../base/errors.ts';
import type { RawHeaders } from '../base/raw-headers.ts';
import type { Nonce } from '../challenges/nonce.ts';
import type { TracedWork } from '../tracing/tracing.ts';
import type { AttemptBudget } from './attempt-budget.ts';
import type { Lost, UpstreamResponse } from './response.ts';

/** One message as it goes over the wire. */
export interface Message {
  /** The request that it is sent for. */
  readonly request: RequestContext;
  readonly method: string;
  /** The request target, byte for byte. */
  readonly target: string;
  readonly headers: RawHeaders;
  readonly body: Buffer | AsyncIterable<Buffer> | null;
  /** Undefined: it is sent without authentication. */
  readonly answers?: AnsweredNonce | undefined;
  /** Asked when it leaves the queue for a connection; left out: it goes out. */
  readonly refusal?: Refusal | undefined;
  /**
   * The response whose challenge it answers: it goes out on the same connection, if that is free, since other connections
   * may lead to servers that do not know the nonce. Undefined: the nonce was known.
   */
  readonly follows?: UpstreamResponse | undefined;
  /** True: goes out on a new connection. Left out or false: on one that is open, if there is one. */
  readonly freshConnection?: boolean;
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
  /** That of the last exchange with one; undefined: there was none. */
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

/** A request, as far as it is the same for each of its messages. */
export interface RequestContext {
  /** Id of the client that it is for; empty: the gateway itself, for a probe or a renewal. */
  readonly client: string;
  readonly cancellation: Cancellation;
  /** True: it may take any time, as a stream does, which says nothing about other requests. */
  readonly noTotalTimeout?: boolean | undefined;
  /** Of the client request that it is for; left out: there is none. */
  readonly facts?: ExchangeFacts | undefined;
  /** Facts from other messages of the request; left out: there were none. */
  readonly budget?: Pick<AttemptBudget, 'isHttp11' | 'ownRefused' | 'ownStale'> | undefined;
  /** Left out: interim responses are dropped. */
  readonly interim?: InterimReceiver | undefined;
  /** Span of the client request; left out: not traced. */
  readonly trace?: TracedWork | undefined;
}

/** A request that is to be authenticated, its body received as far as it can be kept. */
export interface UpstreamRequest extends RequestContext {
  readonly method: string;
  /** The request target, byte for byte. */
  readonly target: string;
  readonly headers: RawHeaders;
  readonly body: RequestBody;
  /** Bounds its exchanges. */
  readonly budget: AttemptBudget;
  /** Asked before each of its messages leaves; left out: they go out. */
  readonly refusal?: Refusal | undefined;
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

/**
 * Sends one message and returns the response at its head: over the connections of an upstream, or as a CONNECT to a
 * proxy.
 * @throws GatewayError when there is no response; the reason of the cancellation
 */
export type Exchange = (message: Message) => Promise<UpstreamResponse | Lost>;
