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

/** What is known of a client's request, and what its exchanges note. */
export interface RequestFacts extends ExchangeFacts {
  /** Id of the client. */
  readonly client: string;
  readonly method: string;
  /** Span of the client request; undefined: not traced. */
  readonly trace: TracedWork | undefined;
}

/** What is to be sent, as the policy grants it. */
export interface RequestToSend {
  /** The request target, byte for byte. */
  readonly target: string;
  readonly headers: RawHeaders;
  /** True: the request may take longer than the total timeout. */
  readonly noTotalTimeout: boolean;
}

/** A client's request from `send` to `end`, and what it takes of its upstream meanwhile. */
export class ActiveRequest implements UpstreamRequest {
  readonly client: string;
  readonly method: string;
  readonly target: string;
  readonly headers: RawHeaders;
  readonly noTotalTimeout: boolean;
  readonly trace: TracedWork | undefined;
  readonly facts: RequestFacts;
  readonly source: BodySource | undefined;
  readonly interim: InterimReceiver;
  readonly cancellation: Cancellation;
  /** None until it was received, as far as it can be kept. */
  body: ReceivedBody = NO_BODY;
  refusal: Refusal | undefined;
  /** Undefined: none has come. */
  response: UpstreamResponse | undefined;
  /** Undefined: none. */
  deadline: Deadline | undefined;
  /** Undefined: it has not been admitted. */
  load: ClientLoad | undefined;
  /** True if its body is streamed because there was no memory to keep it. */
  spilled = false;
  ended = false;

  /** `source`: its body; undefined: it has none. */
  constructor(
    facts: RequestFacts,
    { target, headers, noTotalTimeout }: RequestToSend,
    source: BodySource | undefined,
    interim: InterimReceiver,
    cancellation: Cancellation,
  ) {
    this.client = facts.client;
    this.method = facts.method;
    this.target = target;
    this.headers = headers;
    this.noTotalTimeout = noTotalTimeout;
    this.trace = facts.trace;
    this.facts = facts;
    this.source = source;
    this.interim = interim;
    this.cancellation = cancellation;
  }
}
