import { Cancellation } from '../base/cancellation.ts';
import type { Clock } from '../base/clock.ts';
import { GatewayError } from '../base/errors.ts';
import { reportError } from '../base/report-error.ts';
import type { NoncePool } from '../challenges/pool.ts';
import type { CredentialSet } from '../credentials/credentials.ts';
import { circuitOpen } from '../handshake/errors.ts';
import type { UpstreamRequest } from '../handshake/exchange.ts';
import type { UpstreamResponse } from '../handshake/response.ts';
import type { DeploymentMetrics } from '../metrics/deployment-metrics.ts';
import { type ConnectionOptions, Connections } from '../transport/connections.ts';
import type { Egress } from '../transport/egress.ts';
import { isAddressMissing } from '../transport/errors.ts';
import type { ExchangeObserver } from '../transport/exchange.ts';
import { AddressState, type CircuitOptions, type HealthOptions, type StatusChange } from './address-state.ts';
import type { UpstreamCredential, VersionTest } from './credential.ts';
import type { CredentialRegistry } from './credential-registry.ts';
import type { Transport, VersionOptions } from './credential-version.ts';
import { type CheckPace, checkAddress } from './health-check.ts';
import type { VersionState } from './versions.ts';

/** Options of one address of an upstream. */
export interface AddressOptions extends ConnectionOptions, Omit<VersionOptions, 'timeouts'> {
  /** Attempts in a minute with a credential that is refused. */
  readonly attemptsWhenRefused: number;
  readonly circuit: CircuitOptions;
  readonly health: HealthOptions;
}

/** Options of all addresses of an upstream. */
export interface AddressesOptions extends Omit<AddressOptions, 'origin' | 'egress'> {
  /** `https://host:port` of each address, the preferred one first. */
  readonly origins: readonly string[];
  readonly egress: Pick<Egress, 'proxy'> & { readonly localAddresses: readonly string[] };
}

/** The options of each address: of all that are reached from the first local address, then those from the next one. */
export function eachAddress<T extends Pick<AddressesOptions, 'origins' | 'egress'>>(
  options: T,
): (Omit<T, 'egress'> & Pick<AddressOptions, 'origin' | 'egress'>)[] {
  const { localAddresses, proxy } = options.egress;
  const from = localAddresses.length === 0 ? [undefined] : localAddresses;
  return from.flatMap((localAddress) =>
    options.origins.map((origin) => ({ ...options, origin, egress: { localAddress, proxy } })),
  );
}

/** The status of one address changed. */
export interface AddressChange extends StatusChange {
  readonly deployment: string;
  /** Host and port. */
  readonly address: string;
  /** The local address that it was reached from; undefined: the system chooses. */
  readonly egress: string | undefined;
}

export interface AddressDeps {
  readonly clock: Clock;
  /** Those of the deployment. */
  readonly metrics: DeploymentMetrics;
  /** Shared by all upstreams of this process, as the next one is. */
  readonly credentials: CredentialRegistry;
  readonly checkPace: CheckPace;
  /** Called after each change. */
  readonly onAddress: (change: AddressChange) => void;
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

/** A version of a credential, by their names. */
export interface VersionChoice {
  readonly credential: string;
  readonly version: string;
}

/** The reason with which a check under way is cancelled that is not needed any more. */
const ENDED = new GatewayError('draining', 'The health check has ended.');

/** One address of a deployment's upstream: its connections, its state, and what is known of each credential. */
export class UpstreamAddress implements ExchangeObserver {
  /** Host and port. */
  readonly address: string;
  readonly connections: Connections;
  readonly state: AddressState;
  /** Exchanges of client requests that ended so far. */
  exchanges = 0;
  readonly #options: AddressOptions;
  readonly #deps: AddressDeps;
  readonly #transport: Transport;
  readonly #credentials = new Map<string, UpstreamCredential>();
  /** Cancelled when the checks end. */
  readonly #checks = new Cancellation();

  constructor(options: AddressOptions, deps: AddressDeps, sets: readonly CredentialSet[]) {
    const { origin, circuit, health } = options;
    const { clock, metrics } = deps;
    const address = new URL(origin).host;
    this.address = address;
    this.#options = options;
    this.#deps = deps;
    const { queueWait } = metrics;
    this.connections = new Connections(options, clock, { observer: this, queueWait });
    this.state = new AddressState(circuit, health, clock);
    this.#transport = { options, address, exchange: this.connections.exchange, metrics };
    for (const set of sets) this.#use(set);
    void this.#runChecks();
  }

  get credentials(): CredentialState[] {
    return Array.from(this.#credentials, ([credential, { versions }]) =>
      versions.all.map((each) => ({
        credential,
        version: each.version,
        state: versions.stateOf(each),
        inUse: each === versions.inUse,
        serves: !versions.areRefused,
        rejected: versions.rotation.stateOf(each) === 'rejected',
      })),
    ).flat();
  }

  /** The nonce pools of the versions in use. */
  get pools(): NoncePool[] {
    return Array.from(this.#credentials.values(), (each) => each.poolOn(this.#transport) ?? []).flat();
  }

  /** Target of the gateway's own requests from now on, while none is known that succeeded. */
  set neutralTarget(target: string) {
    this.#options.neutralTarget = target;
  }

  /** Takes over nonces that other processes share; for the start. */
  async restore(): Promise<void> {
    await Promise.all(Array.from(this.#credentials.values(), ({ versions }) => versions.inUse.restore()));
  }

  /** The credential of this name; undefined: no request is sent with it. */
  credential(name: string): UpstreamCredential | undefined {
    return this.#credentials.get(name);
  }

  /** Requests can be sent with this credential from now on. Does nothing if they can already. */
  use(set: CredentialSet): void {
    if (!this.#credentials.has(set.name)) void this.#use(set).versions.inUse.restore();
  }

  /** Takes over the versions that the sources of a credential hold now, if it is used here, or the proxy's. */
  offer(set: CredentialSet): void {
    this.connections.offer(set);
    this.#credentials.get(set.name)?.offer(set);
  }

  /**
   * Goes on with the states of versions at the first of these addresses that is of the same server, unless this one has a
   * credential in common with them. What another server accepted or refused says nothing here.
   */
  takeOver(former: readonly UpstreamAddress[]): void {
    const same = former.filter((each) => each.#options.origin === this.#options.origin);
    for (const [name, { versions }] of this.#credentials) {
      const known = same.flatMap((each) => each.credential(name)?.versions ?? []);
      const [first] = known;
      if (first !== undefined && !known.includes(versions)) versions.takeOver(first);
    }
  }

  has({ credential, version }: VersionChoice): boolean {
    return this.#credentials.get(credential)?.versions.named(version) !== undefined;
  }

  /** Puts a version in use, which is known to be accepted, if it is there. */
  promote({ credential, version }: VersionChoice): void {
    this.#credentials.get(credential)?.promote(version);
  }

  /** Tests a version of a credential: `UpstreamCredential.test`. */
  async testVersion({ credential, version }: VersionChoice, target: string): Promise<VersionTest> {
    return (await this.#credentials.get(credential)?.test(version, target, this.#transport)) ?? 'unknown';
  }

  /** Drops every credential but these; the caller sends no new requests with them. */
  keepOnly(names: ReadonlySet<string>): void {
    for (const name of this.#credentials.keys()) if (!names.has(name)) this.drop(name);
  }

  /** Drops the credential of this name, if it is there; the caller sends no new requests with it. */
  drop(name: string): void {
    const credential = this.#credentials.get(name);
    if (credential === undefined) return;
    this.#credentials.delete(name);
    void this.#release(credential).catch(reportError);
  }

  /**
   * Sends a request, authenticated with the credential of this name, and returns its response at the head.
   * @throws GatewayError `upstream-circuit-open`; when there is no response
   * @throws TypeError when the deployment has no such credential
   */
  send(request: UpstreamRequest, name: string): Promise<UpstreamResponse> {
    const credential = this.#credentials.get(name);
    if (credential === undefined) {
      throw new TypeError(`deployment ${this.#options.deployment} has no credential ${name}`);
    }
    if (this.state.status.circuit !== 'closed') return this.#sendTrial(request, credential);
    return credential.send(request, this.#transport);
  }

  async #sendTrial(request: UpstreamRequest, credential: UpstreamCredential): Promise<UpstreamResponse> {
    const change = this.state.admit(request);
    if (change !== undefined) this.#changed(change);
    try {
      return await credential.send(request, this.#transport);
    } finally {
      this.state.leave(request);
    }
  }

  responded(status: number, client: string): void {
    this.exchanges += 1;
    const change = this.state.responded(status, client);
    if (change !== undefined) this.#changed(change);
  }

  failed(error: GatewayError, sent: boolean, client: string): void {
    this.exchanges += 1;
    // A lack of resources on this host is no evidence against the upstream, and must not open its circuit.
    if (isAddressMissing(error)) return;
    const change = this.state.failed(sent ? 'request' : 'connection', error.detail, client);
    if (change !== undefined) this.#changed(change);
    if (this.state.status.circuit !== 'open') return;
    // Otherwise each waiting request of the client would time out in its turn.
    const waiting = this.connections.removeWaiting((each) => !this.state.isAdmitting(each));
    for (const exchange of waiting) exchange.refuse(circuitOpen(this.state.retryAfterMs(exchange.client)));
  }

  /** Ends the health checks. */
  endChecks(): void {
    this.#checks.cancel(ENDED);
  }

  /** Resolves when the connections are closed. The caller sends no requests any more. */
  async close(): Promise<void> {
    this.endChecks();
    await Promise.all(Array.from(this.#credentials.values(), (each) => this.#release(each)));
    // Only requests of the gateway's own can be under way. The upstream may never respond to them.
    this.connections.close();
  }

  async #runChecks(): Promise<void> {
    const { health } = this.#options;
    const { interval } = health;
    if (interval === undefined) return;
    const { checkPace } = this.#deps;
    const options = { ...health, interval };
    while (this.#checks.reason === undefined) {
      try {
        const changes = checkAddress(this.state, options, this.connections, checkPace, this.#checks);
        for await (const change of changes) this.#changed(change);
      } catch (error) {
        // A defect in one check must not leave the address unchecked.
        reportError(error);
      }
    }
  }

  #changed(change: StatusChange): void {
    const { deployment, egress } = this.#options;
    this.#deps.onAddress({ deployment, address: this.address, egress: egress.localAddress, ...change });
  }

  #use(set: CredentialSet): UpstreamCredential {
    const { attemptsWhenRefused } = this.#options;
    const credential = this.#deps.credentials.use(set, this.#transport, attemptsWhenRefused);
    this.#credentials.set(set.name, credential);
    return credential;
  }

  #release(credential: UpstreamCredential): Promise<void> {
    return this.#deps.credentials.release(credential, this.#transport);
  }
}
