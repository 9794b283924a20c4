import type { Cancellation } from '../base/cancellation.ts';
import { InFlight } from '../base/in-flight.ts';
import type { RawHeaders } from '../base/raw-headers.ts';
import type { NoncePool } from '../challenges/pool.ts';
import { NONCE_POLICIES, type NoncePolicy } from '../challenges/store/store.ts';
import type { CredentialSet } from '../credentials/credentials.ts';
import { AttemptBudget } from '../handshake/attempt-budget.ts';
import { outOfBodyMemory } from '../handshake/errors.ts';
import {
  type ExchangeFacts,
  type InterimReceiver,
  NO_BODY,
  type Refusal,
  type UpstreamRequest,
} from '../handshake/exchange.ts';
import type { UpstreamResponse } from '../handshake/response.ts';
import type { DeploymentMetrics } from '../metrics/deployment-metrics.ts';
import type { Metrics } from '../metrics/metrics.ts';
import type { TracedWork } from '../tracing/tracing.ts';
import type { ConnectionStats } from '../transport/connection.ts';
import {
  type BodyLimits,
  type BodyMemory,
  type BodySource,
  type ReceivedBody,
  receiveBody,
} from '../transport/request-body.ts';
import type { TlsSeen } from '../transport/upstream-tls.ts';
import { Admission, type ClientLoad } from './admission.ts';
import type { VersionTest } from './credential.ts';
import { type Deadline, Deadlines } from './deadlines.ts';
import { circuitOpen } from './errors.ts';
import { type OutcomeOptions, Outcomes, type OutcomesDeps } from './outcomes.ts';
import { RetryBudget, type RetryOptions } from './retry-budget.ts';
import {
  type AddressDeps,
  type AddressOptions,
  type CredentialState,
  UpstreamAddress,
  type VersionChoice,
} from './upstream-address.ts';

/** Options of an upstream; its credentials come apart, since they can change while it is in use. */
export interface UpstreamOptions extends Omit<AddressOptions, 'origin'> {
  /** `https://host:port` of each address, the preferred one first. */
  readonly origins: readonly string[];
  readonly body: BodyLimits;
  /** The longest that one client request may take here, in milliseconds. */
  readonly totalTimeout: number;
  readonly outcomes: readonly OutcomeOptions[];
  readonly retry: RetryOptions;
}

export interface UpstreamDeps extends Omit<AddressDeps, 'queueWait'>, OutcomesDeps {
  readonly metrics: Metrics;
  /** Shared by all upstreams of this process. */
  readonly bodyMemory: BodyMemory;
}

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

/** One deployment's upstream, at one address or several. */
export class Upstream {
  readonly options: UpstreamOptions;
  readonly addresses: readonly UpstreamAddress[];
  readonly #deps: UpstreamDeps;
  /** Undefined: none are configured. */
  readonly outcomes: Outcomes | undefined;
  readonly #deadlines: Deadlines;
  readonly #admission: Admission;
  readonly #metrics: DeploymentMetrics;
  readonly #retries: RetryBudget;
  readonly #inFlight = new InFlight();
  /** Requests on a connection whose bodies are streamed because there was no memory to keep them. */
  #spilled = 0;

  /** `before`: what serves the deployment so far. */
  constructor(
    options: UpstreamOptions,
    deps: UpstreamDeps,
    sets: readonly CredentialSet[],
    before: Upstream | undefined,
  ) {
    const { origins, totalTimeout, retry } = options;
    this.options = options;
    this.#deps = deps;
    this.outcomes = Outcomes.of(options, deps, before?.outcomes);
    this.#deadlines = new Deadlines(totalTimeout, deps.clock);
    this.#admission = new Admission(options.timeouts.response);
    this.#metrics = deps.metrics.deployment(options.deployment);
    const { retries, queueWait } = this.#metrics;
    this.#retries = new RetryBudget(retry, deps.clock, retries);
    const addressDeps = { ...deps, queueWait };
    this.addresses = origins.map((origin) => new UpstreamAddress({ ...options, origin }, addressDeps, sets));
  }

  /** The address that requests prefer now. */
  get preferred(): UpstreamAddress {
    const found = preferredOf(this.addresses);
    if (found === undefined) throw new TypeError('an upstream has at least one address');
    return found;
  }

  /** The credentials at the preferred address. */
  get credentials(): CredentialState[] {
    return this.preferred.credentials;
  }

  /** Connections and requests on them, at all addresses together. */
  get connectionStats(): ConnectionStats {
    const sum = { connected: 0, free: 0, running: 0, pending: 0, limit: 0 };
    for (const { connections } of this.addresses) {
      const { connected, free, running, pending, limit } = connections.stats;
      sum.connected += connected;
      sum.free += free;
      sum.running += running;
      sum.pending += pending;
      sum.limit += limit;
    }
    return sum;
  }

  /** Observations of the last full TLS handshake with the preferred address; undefined: there was none yet. */
  get tlsSeen(): TlsSeen | undefined {
    return this.preferred.connections.tlsSeen;
  }

  /** True if this host has the address that connections leave from; undefined: none is configured. */
  hasEgressAddress(): Promise<boolean | undefined> {
    return this.preferred.connections.hasEgressAddress();
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
    await Promise.all(this.addresses.map((address) => address.restore()));
  }

  uses(credential: string): boolean {
    return this.addresses.some((address) => address.uses(credential));
  }

  /** Takes over the versions that the sources of a credential hold now; a credential that is new here is used at once. */
  offer(set: CredentialSet): void {
    for (const address of this.addresses) address.offer(set);
  }

  /** Does the same if it is the credential of the proxy. */
  offerProxy(set: CredentialSet): void {
    for (const { connections } of this.addresses) connections.offer(set);
  }

  /** Tests a version at the preferred address: `UpstreamCredential.test`. */
  testVersion(choice: VersionChoice, target: string): Promise<VersionTest> {
    return this.preferred.testVersion(choice, target);
  }

  has(choice: VersionChoice): boolean {
    return this.addresses.some((address) => address.has(choice));
  }

  /** Puts a version in use at all addresses that have it. */
  promote(choice: VersionChoice): void {
    for (const address of this.addresses) address.promote(choice);
  }

  /** Drops every credential but these; the caller sends no new requests with them. */
  keepOnly(names: ReadonlySet<string>): void {
    for (const address of this.addresses) address.keepOnly(names);
  }

  /**
   * Sends a client request, authenticated with the credential of this name, and returns its response at the head. The
   * caller ends it when the response has been passed on, or none has come.
   * @throws GatewayError when there is no response; `upstream-paused`; the reason of the cancellation
   * @throws TypeError when the deployment has no such credential
   */
  async send(request: ActiveRequest, credential: string): Promise<UpstreamResponse> {
    const { source } = request;
    this.#inFlight.enter();
    request.refusal = this.outcomes?.admit(credential);
    if (source !== undefined) this.#check(request.client);
    const now = this.#deps.clock.now();
    if (!request.noTotalTimeout)
      request.deadline = this.#deadlines.begin(request.cancellation, source !== undefined, now);
    if (source !== undefined) await this.#receive(request, source);
    const address = this.#admit(request);
    this.#retries.onRequest(now);
    const response = await this.#sendOrMove(request, credential, address);
    request.response = response;
    this.outcomes?.classify(response, credential);
    if (response.isWhole) this.end(request);
    return response;
  }

  /** The response has been passed on, or is not needed any more. Can be called again. */
  end(request: ActiveRequest): void {
    if (request.ended) return;
    request.ended = true;
    const { body, response, deadline, load, spilled } = request;
    const { leftAt } = request.facts;
    if (response !== undefined) {
      this.#metrics.upstreamAttempts[response.isWhole ? 'ok' : 'error'].inc();
      if (!response.isWhole) response.abandon();
    }
    if (load !== undefined) this.#admission.leave(load);
    if (spilled) this.#spilled -= 1;
    if (leftAt !== undefined)
      this.#metrics.upstreamDuration.observe((this.#deps.clock.now() - leftAt) / 1000);
    if (deadline !== undefined) this.#deadlines.end(deadline);
    if (body.kind !== 'none') body.memory?.release();
    this.#inFlight.leave();
  }

  /**
   * Refuses a request before its body is received, if it would be refused afterwards.
   * @throws GatewayError `overloaded`, `upstream-circuit-open`
   */
  #check(client: string): void {
    const address = this.#choose();
    if (address?.state.isAdmitting !== true) throw circuitOpen(this.#retryAfterMs);
    this.#admission.check(client, address.connections);
  }

  /** Takes the body, as far as it can be kept. */
  async #receive(request: ActiveRequest, source: BodySource): Promise<void> {
    const { cancellation, deadline } = request;
    request.body = await receiveBody(source, this.options.body, this.#deps.bodyMemory, cancellation);
    if (deadline !== undefined) deadline.body = request.body;
  }

  /**
   * Admits a request whose body is there, or is as far as it can be kept, and returns the address for it.
   * @throws GatewayError `overloaded`, `upstream-circuit-open`
   */
  #admit(request: ActiveRequest): UpstreamAddress {
    const { body } = request;
    const spilled = body.kind === 'streamed' && body.spilled;
    // Clients that send slowly must not hold every connection.
    if (spilled && this.#spilled >= Math.ceil(this.options.connections / 2)) throw outOfBodyMemory();
    const address = this.#choose();
    if (address === undefined) throw circuitOpen(this.#retryAfterMs);
    request.load = this.#admission.enter(request.client, address.connections);
    if (spilled) this.#spilled += 1;
    request.spilled = spilled;
    return address;
  }

  /** Sends a request to this address; if it gets no response there, once to another one. */
  #sendOrMove(
    request: ActiveRequest,
    credential: string,
    address: UpstreamAddress,
  ): Promise<UpstreamResponse> {
    const budget = new AttemptBudget(this.#retries);
    const sent = address.send(request, budget, credential);
    if (this.addresses.length === 1) return sent;
    return sent.catch((error) => {
      const other = this.#choose(address);
      if (other === undefined || !budget.takeMove(request, error)) throw error;
      return other.send(request, budget, credential);
    });
  }

  /** The address for a request; undefined: the circuit of each is open. `except`: the one that it was sent to. */
  #choose(except?: UpstreamAddress): UpstreamAddress | undefined {
    if (this.addresses.length === 1) return this.addresses[0];
    const usable = this.addresses.filter((each) => each !== except && each.state.isAdmitting);
    return preferredOf(usable);
  }

  get #retryAfterMs(): number {
    return Math.min(...this.addresses.map(({ state }) => state.retryAfterMs));
  }

  /** Resolves when the requests under way are done and the connections closed. The caller sends no new ones. */
  async close(): Promise<void> {
    for (const address of this.addresses) address.endChecks();
    await this.#inFlight.idle();
    await Promise.all(this.addresses.map((address) => address.close()));
  }

  get #pools(): NoncePool[] {
    return this.addresses.flatMap(({ pools }) => pools);
  }
}

/** The first address that is settled, else the first that is not failing, else the first. */
function preferredOf(addresses: readonly UpstreamAddress[]): UpstreamAddress | undefined {
  return (
    addresses.find(({ state }) => state.isSettled) ??
    addresses.find(({ state }) => state.health !== 'failing') ??
    addresses[0]
  );
}
