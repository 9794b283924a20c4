import { Cancellation } from '../base/cancellation.ts';
import type { Clock } from '../base/clock.ts';
import { GatewayError } from '../base/errors.ts';
import { reportError } from '../base/report-error.ts';
import type { NoncePool } from '../challenges/pool.ts';
import type { CredentialSet } from '../credentials/credentials.ts';
import type { UpstreamResponse } from '../handshake/response.ts';
import type { Call } from '../handshake/send-authenticated.ts';
import type { HistogramSeries } from '../metrics/series.ts';
import { type ConnectionOptions, Connections } from '../transport/connections.ts';
import type { ExchangeObserver } from '../transport/exchange.ts';
import { AddressState, type CircuitOptions, type HealthOptions, type StatusChange } from './address-state.ts';
import type { VersionState, VersionTest } from './credential-selector.ts';
import type { CredentialSelectors, SelectorUse } from './credential-selectors.ts';
import type { CredentialVersion, Transport, VersionOptions } from './credential-version.ts';
import { circuitOpen } from './errors.ts';
import { type CheckPace, checkAddress } from './health-check.ts';

/** Options of one address of an upstream. */
export interface AddressOptions extends ConnectionOptions, VersionOptions {
  /** Attempts in a minute with a credential that is refused. */
  readonly attemptsWhenRefused: number;
  readonly circuit: CircuitOptions;
  readonly health: HealthOptions;
}

/** The status of one address changed. */
export interface AddressChange extends StatusChange {
  readonly deployment: string;
  /** Host and port. */
  readonly address: string;
}

export interface AddressDeps {
  readonly clock: Clock;
  /** Observes the seconds of requests that had to wait for a connection. */
  readonly queueWait: HistogramSeries;
  /** Shared by all upstreams of this process, as the next one is. */
  readonly selectors: CredentialSelectors;
  readonly checkPace: CheckPace;
  /** Called after each change. */
  readonly onAddress: (change: AddressChange) => void;
}

/** A client request, before it is known over which connections it goes. */
export type AddressCall = Omit<Call, 'exchange'>;

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

/** One address of a deployment's upstream: its connections, its state, and a selector for each credential. */
export class UpstreamAddress implements ExchangeObserver {
  /** Host and port. */
  readonly address: string;
  readonly connections: Connections;
  readonly state: AddressState;
  readonly #options: AddressOptions;
  readonly #deps: AddressDeps;
  readonly #transport: Transport;
  readonly #selectors = new Map<string, SelectorUse>();
  /** Cancelled when the checks end. */
  readonly #checks = new Cancellation();

  constructor(options: AddressOptions, deps: AddressDeps, sets: readonly CredentialSet[]) {
    const { origin, circuit, health } = options;
    const { clock, queueWait } = deps;
    const address = new URL(origin).host;
    this.address = address;
    this.#options = options;
    this.#deps = deps;
    this.connections = new Connections(options, clock, { observer: this, queueWait });
    this.state = new AddressState(circuit, health, clock);
    this.#transport = { options, address, exchange: this.connections.exchange };
    for (const set of sets) this.#selectors.set(set.name, this.#selectorOf(set));
    void this.#runChecks();
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

  /** The nonce pools of the versions in use. */
  get pools(): NoncePool[] {
    return this.#inUse.flatMap((version) => version.poolOn(this.#transport) ?? []);
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

  /** Tests a version of a credential: `CredentialSelector.test`. */
  async testVersion({ credential, version }: VersionChoice, target: string): Promise<VersionTest> {
    const use = this.#selectors.get(credential);
    if (use === undefined) return 'unknown';
    use.enter();
    try {
      return await use.selector.test(version, target);
    } finally {
      use.leave();
    }
  }

  has({ credential, version }: VersionChoice): boolean {
    return this.#selectors.get(credential)?.selector.has(version) ?? false;
  }

  /** Puts a version of a credential in use that is known to be accepted, if it is there. */
  promote({ credential, version }: VersionChoice): void {
    this.#selectors.get(credential)?.selector.promote(version);
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
   * Sends a client request, authenticated with the credential of this name.
   * @throws GatewayError `upstream-circuit-open`; when there is no response
   * @throws TypeError when the deployment has no such credential
   */
  async send(call: AddressCall, credential: string): Promise<UpstreamResponse> {
    const use = this.#selectors.get(credential);
    if (use === undefined) {
      throw new TypeError(`deployment ${this.#options.deployment} has no credential ${credential}`);
    }
    this.#changed(this.state.admit(call));
    use.enter();
    try {
      const transport = this.#transport;
      const { exchange } = transport;
      const { request, cancellation, budget } = call;
      return await use.selector.send({ request, cancellation, budget, transport, exchange });
    } finally {
      use.leave();
      this.state.leave(call);
    }
  }

  responded(status: number): void {
    this.#changed(this.state.responded(status));
  }

  failed({ detail }: GatewayError, sent: boolean): void {
    this.#changed(this.state.failed(sent ? 'request' : 'connection', detail));
  }

  /** Ends the health checks; for an upstream that is about to close. */
  endChecks(): void {
    this.#checks.cancel(ENDED);
  }

  /** Resolves when the connections are closed. The caller sends no requests any more. */
  async close(): Promise<void> {
    this.endChecks();
    await Promise.all(Array.from(this.#selectors.values(), (use) => use.end()));
    // Only requests of the gateway's own can be under way. The upstream may never respond to them.
    await this.connections.destroy();
  }

  async #runChecks(): Promise<void> {
    const { interval, path } = this.#options.health;
    if (interval === undefined) return;
    const { checkPace } = this.#deps;
    const options = path === undefined ? { interval } : { interval, path };
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

  #changed(change: StatusChange | undefined): void {
    if (change === undefined) return;
    this.#deps.onAddress({ deployment: this.#options.deployment, address: this.address, ...change });
    // Otherwise each waiting request would time out in its turn.
    if (change.after.circuit === 'open') this.connections.refuseWaiting(circuitOpen(this.state.retryAfterMs));
  }

  get #inUse(): CredentialVersion[] {
    return Array.from(this.#selectors.values(), ({ selector }) => selector.current);
  }

  #selectorOf(set: CredentialSet): SelectorUse {
    return this.#deps.selectors.use(set, this.#transport, this.#options.attemptsWhenRefused);
  }
}
