import type { Cancellation } from '../base/cancellation.ts';
import type { Clock } from '../base/clock.ts';
import type { RawHeaders } from '../base/raw-headers.ts';
import { NONCE_POLICIES, type NoncePolicy } from '../challenges/store/store.ts';
import type { CredentialSet } from '../credentials/credentials.ts';
import { AttemptBudget } from '../handshake/attempt-budget.ts';
import { outOfBodyMemory } from '../handshake/errors.ts';
import { NO_BODY, type UpstreamRequest } from '../handshake/request.ts';
import type { ResponseHandler } from '../handshake/response-handler.ts';
import type { Metrics } from '../metrics/metrics.ts';
import type { TracedWork } from '../tracing/tracing.ts';
import { type ConnectionOptions, Connections } from '../transport/connections.ts';
import {
  type BodyLimits,
  type BodyMemory,
  type BodySource,
  type ReceivedBody,
  receiveBody,
} from '../transport/request-body.ts';
import type { VersionState } from './credential-selector.ts';
import type { CredentialSelectors, SelectorUse } from './credential-selectors.ts';
import type { CredentialVersion, Transport, VersionOptions } from './credential-version.ts';
import { Deadlines } from './deadlines.ts';
import { overloaded } from './errors.ts';

/** Requests that may wait for each connection before the gateway says that it is overloaded. */
const QUEUE_PER_CONNECTION = 16;

/** Options of an upstream; its credentials come apart, since they can change while it is in use. */
export interface UpstreamOptions extends ConnectionOptions, VersionOptions {
  /** Attempts in a minute with a credential that is refused. */
  readonly attemptsWhenRefused: number;
  readonly body: BodyLimits;
  /** The longest that one client request may take here, in milliseconds. */
  readonly totalTimeout: number;
}

/** A client's request as it is to reach the upstream. */
export interface ClientRequest {
  readonly method: string;
  /** The request target, byte for byte. */
  readonly target: string;
  readonly headers: RawHeaders;
  /** Undefined: the request has no body. */
  readonly body: BodySource | undefined;
  /** Span of the client request; undefined: not traced. */
  readonly trace: TracedWork | undefined;
}

export interface UpstreamDeps {
  readonly clock: Clock;
  readonly metrics: Metrics;
  /** Shared by all upstreams of this process. */
  readonly selectors: CredentialSelectors;
  /** Shared by all upstreams of this process. */
  readonly bodyMemory: BodyMemory;
}

/** State of one version of a credential. */
export interface CredentialState {
  readonly credential: string;
  readonly version: string;
  readonly state: VersionState;
  /** True if requests go out with it. */
  readonly inUse: boolean;
  /** False: the upstream refuses every version of the credential, so that requests fail. */
  readonly serves: boolean;
  /** True if it was to take the place of the one in use, and its trial failed. */
  readonly rejected: boolean;
}

/** One deployment's upstream: its connections, and a selector for each credential. */
export class Upstream {
  readonly options: UpstreamOptions;
  readonly #deps: UpstreamDeps;
  readonly connections: Connections;
  readonly #transport: Transport;
  readonly #deadlines: Deadlines;
  readonly #selectors = new Map<string, SelectorUse>();
  #inFlight = 0;
  /** Requests that are on a connection or wait for one. */
  #sending = 0;
  /** Requests on a connection whose bodies are streamed because there was no memory to keep them. */
  #spilled = 0;
  #onIdle: (() => void) | undefined;

  constructor(options: UpstreamOptions, deps: UpstreamDeps, sets: readonly CredentialSet[]) {
    this.options = options;
    this.#deps = deps;
    this.#deadlines = new Deadlines(options.totalTimeout, deps.clock);
    this.connections = new Connections(options, deps.clock);
    this.#transport = { options, exchange: this.connections.exchange };
    for (const set of sets) this.#selectors.set(set.name, this.#selectorOf(set));
  }

  get credentials(): CredentialState[] {
    return Array.from(this.#selectors, ([credential, { selector }]) =>
      selector.versions.map((each) => ({
        credential,
        version: each.version,
        state: selector.stateOf(each),
        inUse: selector.isInUse(each),
        serves: !selector.isRefused,
        rejected: selector.isRejected(each),
      })),
    ).flat();
  }

  /** Age of the youngest nonce in use, in milliseconds; undefined: none is. */
  get nonceAgeMs(): number | undefined {
    const ages = this.#pools.flatMap(({ known }) =>
      known === undefined ? [] : [this.#deps.clock.now() - known.obtainedAt],
    );
    return ages.length === 0 ? undefined : Math.min(...ages);
  }

  /** Reuse policy; where credentials differ, the strictest. */
  get noncePolicy(): NoncePolicy {
    const policies = new Set(this.#pools.map(({ policy }) => policy));
    return NONCE_POLICIES.findLast((policy) => policies.has(policy)) ?? NONCE_POLICIES[0];
  }

  /** Shortest lifetime of nonces that was learned, in milliseconds; undefined: none was. */
  get nonceLifetimeMs(): number | undefined {
    const lifetimes = this.#pools.flatMap(({ lifetimeMs }) => lifetimeMs ?? []);
    return lifetimes.length === 0 ? undefined : Math.min(...lifetimes);
  }

  /** Takes over nonces that other processes share; for the start. */
  async restore(): Promise<void> {
    await Promise.all(this.#inUse.map((version) => version.restore()));
  }

  uses(credential: string): boolean {
    return this.#selectors.has(credential);
  }

  /** Takes over the versions that the sources of a credential hold now; a credential that is new here is used at once. */
  offer(set: CredentialSet): void {
    const known = this.#selectors.get(set.name);
    known?.selector.offer(set);
    if (known !== undefined) return;
    const added = this.#selectorOf(set);
    this.#selectors.set(set.name, added);
    void added.selector.current.restore();
  }

  /** Drops every credential but these; the caller sends no new requests with them. */
  keepOnly(names: ReadonlySet<string>): void {
    for (const [name, use] of this.#selectors) {
      if (names.has(name)) continue;
      this.#selectors.delete(name);
      void use.end();
    }
  }

  /**
   * Sends a client request, authenticated with the credential of this name, and hands its response to the handler.
   * @throws GatewayError when no response reached the handler, or when it broke off; the reason of the cancellation
   * @throws TypeError when the deployment has no such credential
   */
  async send(
    request: ClientRequest,
    credential: string,
    handler: ResponseHandler,
    cancellation: Cancellation,
  ): Promise<void> {
    const { deployment } = this.options;
    const use = this.#selectors.get(credential);
    if (use === undefined) throw new TypeError(`deployment ${deployment} has no credential ${credential}`);
    const deadline = this.#deadlines.begin(cancellation, request.body !== undefined);
    let body: ReceivedBody = NO_BODY;
    this.#inFlight += 1;
    try {
      if (request.body !== undefined) {
        body = await receiveBody(request.body, this.options.body, this.#deps.bodyMemory, cancellation);
        deadline.body = body;
      }
      const { method, target, headers, trace } = request;
      await this.#sendReceived({ method, target, headers, body, trace }, use, handler, cancellation);
    } finally {
      this.#deadlines.end(deadline);
      if (body.kind !== 'none') body.memory?.release();
      this.#inFlight -= 1;
      if (this.#inFlight === 0) this.#onIdle?.();
    }
  }

  /** Sends a request whose body is there, or is as far as it can be kept. */
  async #sendReceived(
    request: UpstreamRequest,
    use: SelectorUse,
    handler: ResponseHandler,
    cancellation: Cancellation,
  ): Promise<void> {
    const { deployment, connections } = this.options;
    const spilled = request.body.kind === 'streamed' && request.body.spilled;
    if (this.#sending >= connections * (1 + QUEUE_PER_CONNECTION)) throw overloaded();
    // Clients that send slowly must not hold every connection.
    if (spilled && this.#spilled >= Math.ceil(connections / 2)) throw outOfBodyMemory();
    const begun = this.#deps.clock.now();
    this.#sending += 1;
    if (spilled) this.#spilled += 1;
    use.enter();
    try {
      const transport = this.#transport;
      const { exchange } = transport;
      const budget = new AttemptBudget();
      await use.selector.send({ request, handler, cancellation, transport, exchange, budget });
    } finally {
      use.leave();
      this.#sending -= 1;
      if (spilled) this.#spilled -= 1;
      const seconds = (this.#deps.clock.now() - begun) / 1000;
      this.#deps.metrics.deployment(deployment).upstreamDuration.observe(seconds);
    }
  }

  /** Resolves when the requests under way are done and the connections closed. The caller sends no new ones. */
  async close(): Promise<void> {
    if (this.#inFlight > 0) {
      await new Promise<void>((resolve) => {
        this.#onIdle = resolve;
      });
    }
    await Promise.all(Array.from(this.#selectors.values(), (use) => use.end()));
    await this.connections.close();
  }

  get #inUse(): CredentialVersion[] {
    return Array.from(this.#selectors.values(), ({ selector }) => selector.current);
  }

  get #pools() {
    return this.#inUse.flatMap((version) => version.poolOn(this.#transport) ?? []);
  }

  #selectorOf(set: CredentialSet): SelectorUse {
    return this.#deps.selectors.use(set, this.#transport, this.options.attemptsWhenRefused);
  }
}
