import { InFlight } from '../base/in-flight.ts';
import { reportError } from '../base/report-error.ts';
import type { CredentialSet } from '../credentials/credentials.ts';
import { IDEMPOTENT, RetryBudget, type RetryOptions } from '../handshake/attempt-budget.ts';
import { circuitOpen, outOfBodyMemory } from '../handshake/errors.ts';
import type { UpstreamResponse } from '../handshake/response.ts';
import type { DeploymentMetrics } from '../metrics/deployment-metrics.ts';
import { isAddressMissing } from '../transport/errors.ts';
import { type BodyLimits, type BodyMemory, receiveBody } from '../transport/request-body.ts';
import { type ActiveRequest, Admission, Deadlines } from './client-request.ts';
import {
  EgressAddresses,
  type EgressAddressesDeps,
  type EgressAddressesOptions,
  type EgressChoice,
} from './egress-addresses.ts';
import { Outcomes, type OutcomesDeps, type OutcomesOptions } from './outcomes.ts';
import type { UpstreamAddress } from './upstream-address.ts';

export interface UpstreamOptions extends OutcomesOptions {
  readonly egress: Omit<EgressAddressesOptions, 'deployment'>;
  /** Most connections to an address at a time. */
  readonly connections: number;
  /** Milliseconds. */
  readonly timeouts: {
    /** The longest that a request may wait for a connection, too. */
    readonly response: number;
  };
  /** The longest that one client request may take here, in milliseconds. */
  readonly totalTimeout: number;
  readonly body: BodyLimits;
  readonly retry: RetryOptions;
  /** True: the trace of a client is passed on. */
  readonly forwardTrace: boolean;
}

export interface UpstreamDeps extends OutcomesDeps, EgressAddressesDeps {
  /** Those of the deployment. */
  readonly metrics: DeploymentMetrics;
  /** Shared by all upstreams of this process. */
  readonly bodyMemory: BodyMemory;
}

/** Milliseconds between two looks which of several local addresses this host has. */
const LOOK_MS = 5_000;

/** Sends the requests of one deployment: to one address or several, from one local address or several. */
export class Upstream {
  readonly options: UpstreamOptions;
  /** All that are reached from the first local address, then those from the next one. */
  readonly addresses: readonly UpstreamAddress[];
  /** The local addresses that requests leave from. */
  readonly egress: EgressAddresses;
  /** Undefined: there is one local address at most. */
  readonly #looking: NodeJS.Timeout | undefined;
  readonly #deps: UpstreamDeps;
  /** Undefined: none are configured. */
  readonly outcomes: Outcomes | undefined;
  readonly #deadlines: Deadlines;
  readonly #admission: Admission;
  /** For the budgets of requests. */
  readonly retries: RetryBudget;
  readonly #inFlight = new InFlight();
  /** By credential, those that have no response yet: the body of a request may arrive after a reload. */
  readonly #sending = new Map<string, number>();
  /** Credentials that are dropped when no request with them is without a response. */
  readonly #leaving = new Set<string>();
  /** Requests on a connection whose bodies are streamed because there was no memory to keep them. */
  #spilled = 0;

  /** `before`: what serves the deployment so far. */
  constructor(
    options: UpstreamOptions,
    deps: UpstreamDeps,
    addresses: readonly UpstreamAddress[],
    before: Upstream | undefined,
  ) {
    const { deployment, egress, totalTimeout, retry } = options;
    this.options = options;
    this.addresses = addresses;
    this.#deps = deps;
    this.outcomes = Outcomes.of(options, deps, before?.outcomes);
    this.#deadlines = new Deadlines(totalTimeout, deps.clock);
    this.#admission = new Admission(options.timeouts.response);
    this.retries = new RetryBudget(retry, deps.clock, deps.metrics.retries);
    this.egress = EgressAddresses.of({ ...egress, deployment }, deps, before?.egress);
    if (!this.egress.areSeveral) return;
    const look = (): void => void this.egress.look().catch(reportError);
    this.#looking = setInterval(look, LOOK_MS).unref();
    look();
  }

  /** The addresses as reached from the local address that requests leave from now. */
  get addressesInUse(): readonly UpstreamAddress[] {
    return this.#reachedFrom(this.egress.inUse);
  }

  /** The address that requests prefer now. */
  get preferred(): UpstreamAddress {
    const found = preferredOf(this.addressesInUse);
    if (found === undefined) throw new TypeError('an upstream has at least one address');
    return found;
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
    this.#sending.set(credential, (this.#sending.get(credential) ?? 0) + 1);
    try {
      request.refusal = this.outcomes?.admit(credential);
      if (source !== undefined) this.#check(request.client);
      const now = this.#deps.clock.now();
      if (!request.noTotalTimeout) this.#deadlines.begin(request, now);
      if (source !== undefined) {
        // As far as it can be kept.
        request.body = await receiveBody(
          source,
          this.options.body,
          this.#deps.bodyMemory,
          request.client,
          request.cancellation,
        );
      }
      let response: UpstreamResponse;
      if (this.egress.areSeveral) {
        response = await this.#sendFromAny(request, credential, now);
      } else {
        const address = this.#admit(request, this.addresses, now);
        response = await this.#sendOrMove(request, credential, address, this.addresses);
        request.response = response;
        this.outcomes?.classify(response, credential);
      }
      if (response.isWhole) this.end(request);
      return response;
    } finally {
      const left = (this.#sending.get(credential) ?? 0) - 1;
      this.#sending.set(credential, left);
      if (left === 0 && this.#leaving.delete(credential))
        for (const address of this.addresses) address.drop(credential);
    }
  }

  /** The response has been passed on, or is not needed any more. Can be called again. */
  end(request: ActiveRequest): void {
    if (request.ended) return;
    request.ended = true;
    const { body, response, load, spilled } = request;
    const { leftAt } = request.facts;
    const { metrics, clock } = this.#deps;
    if (response !== undefined) {
      metrics.upstreamAttempts[response.isWhole ? 'ok' : 'error'].inc();
      if (!response.isWhole) response.abandon();
    }
    if (load !== undefined) load.count -= 1;
    if (spilled) this.#spilled -= 1;
    if (leftAt !== undefined) metrics.upstreamDuration.observe((clock.now() - leftAt) / 1000);
    this.#deadlines.end(request);
    if (body.kind !== 'none') body.memory?.release();
    this.#inFlight.leave();
  }

  /**
   * Refuses a request before its body is received, if it would be refused afterwards.
   * @throws GatewayError `overloaded`, `upstream-circuit-open`
   */
  #check(client: string): void {
    const address = this.#choose(this.addressesInUse, client);
    if (address?.state.isAdmitting(client) !== true) throw circuitOpen(this.#retryAfterMs(client));
    this.#admission.check(client, address.connections);
  }

  /**
   * Admits a request whose body is there, or is as far as it can be kept, and returns which of these is the address for
   * it.
   * `now`: when it came.
   * @throws GatewayError `overloaded`, `upstream-circuit-open`
   */
  #admit(request: ActiveRequest, addresses: readonly UpstreamAddress[], now: number): UpstreamAddress {
    const { body } = request;
    const spilled = body.kind === 'streamed' && body.spilled;
    // Clients that send slowly must not hold every connection.
    if (spilled && this.#spilled >= Math.ceil(this.options.connections / 2)) throw outOfBodyMemory();
    const address = this.#choose(addresses, request.client);
    if (address === undefined) throw circuitOpen(this.#retryAfterMs(request.client));
    request.load = this.#admission.check(request.client, address.connections);
    request.load.count += 1;
    if (spilled) this.#spilled += 1;
    request.spilled = spilled;
    this.retries.onRequest(now);
    return address;
  }

  /** Sends a request from the local address in use, and goes on from others as `#sendFrom` says. */
  async #sendFromAny(request: ActiveRequest, credential: string, now: number): Promise<UpstreamResponse> {
    const mayTry = request.body.kind !== 'streamed' && IDEMPOTENT.has(request.method);
    let from = this.egress.choose(mayTry);
    if (from.isTrial && !this.#isAdmittingFrom(from, request.client))
      from = this.egress.untried(from) ?? from;
    let address: UpstreamAddress | undefined = this.#admit(request, this.#reachedFrom(from.index), now);
    for (;;) {
      const result = await this.#sendFrom(from, request, credential, address);
      if ('kind' in result) return result;
      from = result;
      address = this.#choose(this.#reachedFrom(from.index), request.client);
      if (address === undefined) throw circuitOpen(this.#retryAfterMs(request.client));
    }
  }

  /**
   * Sends a request from this local address, and returns its response; or another local address from which it goes on, if
   * this host does not have this one, or the upstream refused it and the request can be repeated.
   */
  async #sendFrom(
    from: EgressChoice,
    request: ActiveRequest,
    credential: string,
    address: UpstreamAddress,
  ): Promise<UpstreamResponse | EgressChoice> {
    request.facts.egress = from.address;
    let response: UpstreamResponse;
    try {
      const addresses = this.#reachedFrom(from.index);
      response = await this.#sendOrMove(request, credential, address, addresses);
    } catch (error) {
      const next = isAddressMissing(error)
        ? this.egress.missing(from)
        : from.isTrial
          ? this.egress.untried(from)
          : undefined;
      if (next === undefined || !request.budget.takeMove(error, 'next_egress')) throw error;
      return next;
    }
    request.response = response;
    const isRefused = await this.outcomes?.refusesEgress(response, credential);
    if (isRefused !== true) {
      this.egress.accepted(from, response.status);
      return response;
    }
    const next = this.egress.refused(from, response.outcome);
    const isAdmitted = next !== undefined && this.#isAdmittingFrom(next, request.client);
    if (!isAdmitted || !request.budget.takeNextEgress()) return response;
    await response.discard();
    this.#deps.metrics.upstreamAttempts[response.isWhole ? 'ok' : 'error'].inc();
    request.response = undefined;
    return next;
  }

  /** Sends a request to this address; if it gets no response there, once to another one of these. */
  #sendOrMove(
    request: ActiveRequest,
    credential: string,
    address: UpstreamAddress,
    addresses: readonly UpstreamAddress[],
  ): Promise<UpstreamResponse> {
    const sent = address.send(request, credential);
    if (addresses.length === 1) return sent;
    return sent.catch((error) => {
      // The others are reached from the same local address. Where the system chooses it, one of them can have a free port.
      if (isAddressMissing(error) && this.options.egress.localAddresses.length > 0) throw error;
      const other = this.#choose(addresses, request.client, address);
      if (other === undefined || !request.budget.takeMove(error)) throw error;
      return other.send(request, credential);
    });
  }

  /**
   * Which of these a request of this client is sent to; undefined: the circuit of each is open. `except`: the one that it
   * was sent to.
   */
  #choose(
    addresses: readonly UpstreamAddress[],
    client: string,
    except?: UpstreamAddress,
  ): UpstreamAddress | undefined {
    if (addresses.length === 1) return addresses[0];
    const usable = addresses.filter((each) => each !== except && each.state.isAdmitting(client));
    return preferredOf(usable);
  }

  /** The addresses as reached from the local address at this position. */
  #reachedFrom(index: number): readonly UpstreamAddress[] {
    if (!this.egress.areSeveral) return this.addresses;
    const { length } = this.options.origins;
    return this.addresses.slice(index * length, (index + 1) * length);
  }

  #isAdmittingFrom({ index }: EgressChoice, client: string): boolean {
    return this.#reachedFrom(index).some(({ state }) => state.isAdmitting(client));
  }

  #retryAfterMs(client: string): number {
    return Math.min(...this.addressesInUse.map(({ state }) => state.retryAfterMs(client)));
  }

  /** Requests can be sent with this credential from now on. Does nothing if they can already. */
  use(set: CredentialSet): void {
    this.#leaving.delete(set.name);
    for (const address of this.addresses) address.use(set);
  }

  /**
   * Drops every credential but these: one with which requests are sent when the last of them has its response, unless it
   * is used again by then. The caller sends no new requests with them.
   */
  keepOnly(names: ReadonlySet<string>): void {
    const kept = new Set(names);
    for (const [name, requests] of this.#sending) {
      if (names.has(name) || requests === 0) continue;
      kept.add(name);
      this.#leaving.add(name);
    }
    for (const address of this.addresses) address.keepOnly(kept);
  }

  /** Resolves when the requests under way are done, and the connections closed. The caller sends no new ones. */
  async close(): Promise<void> {
    clearInterval(this.#looking);
    for (const address of this.addresses) address.endChecks();
    await this.#inFlight.idle();
    await Promise.all(this.addresses.map((address) => address.close()));
  }
}

/** The first address that is settled, else the first that is not failing, else the first. */
function preferredOf(addresses: readonly UpstreamAddress[]): UpstreamAddress | undefined {
  return (
    addresses.find(({ state }) => state.isSettled) ??
    addresses.find(({ state }) => state.status.health !== 'failing') ??
    addresses[0]
  );
}
