import type { Cancellation } from '../base/cancellation.ts';
import type { RawHeaders } from '../base/raw-headers.ts';
import {
  type ExchangeFacts,
  type InterimReceiver,
  NO_BODY,
  type Refusal,
  type UpstreamRequest,
} from '../handshake/exchange.ts';
import type { UpstreamResponse } from '../handshake/response.ts';
import type { TracedWork } from '../tracing/tracing.ts';
import type { BodySource, ReceivedBody } from '../transport/request-body.ts';
import type { ClientLoad } from './admission.ts';
import type { Deadline } from './deadlines.ts';

/** A client's request as it is to reach the upstream. */
export interface ClientRequest {
  /** Id of the client. */
  readonly client: string;
  readonly method: string;
  /** The request target, byte for byte. */
  readonly target: string;
  readonly headers: RawHeaders;
  /** Undefined: the request has no body. */
  readonly body: BodySource | undefined;
  /** Span of the client request; undefined: not traced. */
  readonly trace: TracedWork | undefined;
  /** True: the request may take longer than the total timeout. */
  readonly noTotalTimeout: boolean;
  readonly facts: ExchangeFacts;
  readonly interim: InterimReceiver;
  readonly cancellation: Cancellation;
}

/** A client request from `begin` to `end`, and what it takes of its upstream meanwhile. */
export interface ActiveRequest extends UpstreamRequest {
  readonly source: BodySource | undefined;
  readonly facts: ExchangeFacts;
  /** None until it was received, as far as it can be kept. */
  body: ReceivedBody;
  refusal: Refusal | undefined;
  /** Undefined: none has come. */
  response: UpstreamResponse | undefined;
  /** Undefined: none. */
  deadline: Deadline | undefined;
  /** Undefined: it has not been admitted. */
  load: ClientLoad | undefined;
  /** True if its body is streamed because there was no memory to keep it. */
  spilled: boolean;
  ended: boolean;
}

/** Returns a request that nothing was received of yet but its head. */
export function activeRequest(request: ClientRequest): ActiveRequest {
  const { client, method, target, headers, trace, noTotalTimeout, facts, interim, cancellation } = request;
  return {
    client,
    method,
    target,
    headers,
    source: request.body,
    body: NO_BODY,
    trace,
    noTotalTimeout,
    refusal: undefined,
    facts,
    interim,
    cancellation,
    response: undefined,
    deadline: undefined,
    load: undefined,
    spilled: false,
    ended: false,
  };
}
