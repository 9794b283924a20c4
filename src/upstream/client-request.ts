import type { Cancellation } from '../base/cancellation.ts';
import type { Clock } from '../base/clock.ts';
import type { GatewayError } from '../base/errors.ts';
import { type ClientState, PerClient } from '../base/per-client.ts';
import type { RawHeaders } from '../base/raw-headers.ts';
import { callEach } from '../base/report-error.ts';
import { AttemptBudget, type Retries } from '../handshake/attempt-budget.ts';
import { clientTooSlow, upstreamTooSlow } from '../handshake/errors.ts';
import {
  type ExchangeFacts,
  type InterimReceiver,
  NO_BODY,
  type Refusal,
  type UpstreamRequest,
} from '../handshake/exchange.ts';
import type { UpstreamResponse } from '../handshake/response.ts';
import type { Grant } from '../policy/decide.ts';
import type { TracedWork } from '../tracing/tracing.ts';
import { tooManyRequests, waitTooLong } from '../transport/errors.ts';
import { type Linked, LinkedQueue } from '../transport/fair-queue.ts';
import type { BodySource, ReceivedBody } from '../transport/request-body.ts';

/** A client's request with the facts that its exchanges note. */
export interface RequestFacts extends ExchangeFacts {
  /** Id of the client. */
  readonly client: string;
  readonly method: string;
  /** Span of the client request; undefined: not traced. */
  readonly trace: TracedWork | undefined;
}

/** A client's request from `send` to `end`, and what it takes of its upstream meanwhile. */
export class ActiveRequest implements UpstreamRequest, Linked<ActiveRequest> {
  readonly client: string;
  readonly method: string;
  readonly target: string;
  readonly headers: RawHeaders;
  readonly noTotalTimeout: boolean;
  readonly trace: TracedWork | undefined;
  readonly facts: RequestFacts;
  /** Its body; undefined: it has none. */
  readonly source: BodySource | undefined;
  readonly interim: InterimReceiver;
  readonly cancellation: Cancellation;
  readonly budget: AttemptBudget;
  /** None until it was received, as far as it can be kept. */
  body: ReceivedBody = NO_BODY;
  refusal: Refusal | undefined;
  /** Undefined: none has come. */
  response: UpstreamResponse | undefined;
  /** When its time is over, on the clock of the process, in milliseconds. `Deadlines` sets it. */
  deadline = Number.POSITIVE_INFINITY;
  previous: ActiveRequest | undefined = undefined;
  next: ActiveRequest | undefined = undefined;
  /** Undefined: it has not been admitted. */
  load: ClientLoad | undefined;
  /** True if its body is streamed because there was no memory to keep it. */
  spilled = false;
  ended = false;

  /** `source`: its body; undefined: it has none. `retries`: those of its upstream. */
  constructor(
    facts: RequestFacts,
    { target, headers, noTotalTimeout }: Pick<Grant, 'target' | 'headers' | 'noTotalTimeout'>,
    source: BodySource | undefined,
    interim: InterimReceiver,
    cancellation: Cancellation,
    retries: Retries,
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
    this.budget = new AttemptBudget(facts.method, retries, undefined, facts.client);
  }
}

/** Requests that a client may have here for each connection: one on it, 16 that wait. */
const MAX_PER_CONNECTION = 17;

/** Requests of one client that are on a connection or wait for one. */
export class ClientLoad implements ClientState {
  /** Its upstream changes it. */
  count = 0;

  get isUnused(): boolean {
    return this.count === 0;
  }
}

/** The queue that a request would wait in. */
export interface AdmissionQueue {
  /** The most connections. */
  readonly limit: number;
  /** The expected wait of a request of this client for a connection, in milliseconds. */
  expectedWait(client: string): number;
}

/**
 * Admits requests to the queue of an upstream. The bound is per client, so that one client cannot fill the queue: since
 * clients take turns in it, those behind the requests of another do not wait for them.
 */
export class Admission {
  readonly #longestWait: number;
  readonly #clients = new PerClient(() => new ClientLoad());

  /** `longestWait`: the longest expected wait for a connection, in milliseconds. */
  constructor(longestWait: number) {
    this.#longestWait = longestWait;
  }

  /**
   * Returns the load in which a request of this client is counted until its end.
   * @throws GatewayError `overloaded` if it would not be admitted now
   */
  check(client: string, queue: AdmissionQueue): ClientLoad {
    const load = this.#clients.of(client);
    const expectedWait = queue.expectedWait(client);
    if (load.count >= MAX_PER_CONNECTION * queue.limit) throw tooManyRequests(load.count, expectedWait);
    if (expectedWait > this.#longestWait) throw waitTooLong(expectedWait, this.#longestWait);
    return load;
  }
}

/** Cancels requests that take longer than a time that is the same for all, so that one timer serves them all. */
export class Deadlines {
  readonly #ms: number;
  readonly #clock: Clock;
  /** In the order in which they end. */
  readonly #open = new LinkedQueue<ActiveRequest>();
  #timer: NodeJS.Timeout | undefined;

  /** `ms`: the time that a request may take, in milliseconds. */
  constructor(ms: number, clock: Clock) {
    this.#ms = ms;
    this.#clock = clock;
  }

  /** The time of a request begins now; the caller calls `end` when it is over. */
  begin(request: ActiveRequest, now: number): void {
    request.deadline = now + this.#ms;
    this.#open.add(request);
    this.#timer ??= this.#wake(this.#ms);
  }

  /** Does nothing for a request whose time was not begun, or is over. */
  end(request: ActiveRequest): void {
    this.#open.remove(request);
  }

  /** It keeps no process alive: a request does so by its connections. */
  #wake(ms: number): NodeJS.Timeout {
    return setTimeout(() => this.#expire(), ms).unref();
  }

  #expire(): void {
    this.#timer = undefined;
    const now = this.#clock.now();
    const expired: ActiveRequest[] = [];
    const open = this.#open;
    for (let first = open.first; first !== undefined && first.deadline <= now; first = open.first) {
      open.remove(first);
      expired.push(first);
    }
    if (open.first !== undefined) this.#timer = this.#wake(open.first.deadline - now);
    callEach(expired, (request) => request.cancellation.cancel(this.#reasonOf(request)));
  }

  #reasonOf({ source, body }: ActiveRequest): GatewayError {
    const isReceiving = source !== undefined && body === NO_BODY;
    const awaitsClient = isReceiving || (body.kind === 'streamed' && body.progress.awaitsClient);
    return awaitsClient ? clientTooSlow(this.#ms) : upstreamTooSlow(this.#ms);
  }
}
