import type { Clock } from '../base/clock.ts';
import { reportError } from '../base/report-error.ts';
import { NonceCounters } from '../challenges/nonce.ts';
import { type ChallengeStore, serializeKey } from '../challenges/store/store.ts';
import type { CredentialSet } from '../credentials/credentials.ts';
import { egressAddress } from '../transport/egress.ts';
import { trustOf } from '../transport/upstream-tls.ts';
import { UpstreamCredential } from './credential.ts';
import { CredentialCircuit, RefusedTargets } from './credential-circuit.ts';
import { CredentialVersion, type Transport, type VersionDeps } from './credential-version.ts';
import type { CredentialNews, RotationNews } from './rotation.ts';

export interface RegistryDeps extends Omit<VersionDeps, 'counters' | 'recorded'> {
  readonly store: ChallengeStore;
  readonly clock: Clock;
  /** Called when a candidate of a deployment was promoted or refused. */
  readonly onRotation: (rotation: RotationNews) => void;
  /** Called when the upstream begins to refuse a version, and when it accepts it again. */
  readonly onHealth: (news: CredentialNews) => void;
}

interface Entry {
  readonly credential: UpstreamCredential;
  readonly key: string;
  readonly circuitKey: string;
  readonly origin: string;
  readonly users: Set<Transport>;
}

interface CircuitEntry {
  readonly circuit: CredentialCircuit;
  users: number;
}

/** Between two looks at what other processes have seen of credentials, in milliseconds. */
const CATCH_UP_MS = 1_000;
/** Credentials in one look: each costs calls to the store. */
const MAX_CATCH_UPS = 50;

/**
 * The credentials of this process, one for each name at one upstream. Upstreams that are the same to the outside, as
 * before and after a reload, use the same one, so that nothing that is known of it or is being found out begins anew,
 * and one counter gives every nc of a nonce.
 */
export class CredentialRegistry {
  readonly #deps: RegistryDeps;
  readonly #entries = new Map<string, Entry>();
  /** By deployment and credential: what a minute allows does not depend on how the upstream is reached. */
  readonly #circuits = new Map<string, CircuitEntry>();
  /** By origin: a server may give one nonce to all who ask at once, and its count goes on for each answer to it. */
  readonly #counters = new Map<string, NonceCounters>();
  #catchingUp: NodeJS.Timeout | undefined;

  constructor(deps: RegistryDeps) {
    this.#deps = deps;
    deps.store.onChange((key) => {
      for (const { credential } of this.#entries.values()) {
        for (const version of credential.versions.all) if (version.key === key) version.adopt();
      }
    });
  }

  /**
   * The credential of this set, for requests over this transport; made from what the sources hold unless it is in use.
   */
  use(set: CredentialSet, transport: Transport, attemptsWhenRefused: number): UpstreamCredential {
    const { deployment, origin, egress, tls } = transport.options;
    const circuitKey = JSON.stringify([deployment, set.name]);
    const circuit = this.#useCircuit(circuitKey, attemptsWhenRefused);
    const key = serializeKey({
      deployment,
      origin,
      credential: set.name,
      credentialVersion: '',
      egressAddress: egressAddress(egress),
      trust: trustOf(tls),
    });
    const known = this.#entries.get(key);
    const open = (): UpstreamCredential => this.#open(set, key, transport, circuit, attemptsWhenRefused);
    const entry = known ?? { credential: open(), key, circuitKey, origin, users: new Set<Transport>() };
    this.#entries.set(key, entry);
    this.#catchingUp ??= setInterval(() => void this.#catchUp().catch(reportError), CATCH_UP_MS).unref();
    entry.users.add(transport);
    entry.credential.attach(transport);
    return entry.credential;
  }

  /**
   * The upstream of this transport uses the credential no more; the caller sends no new requests. Resolves when the last
   * one is over and the nonces that nobody uses are left to other processes. Can be called again.
   */
  async release(credential: UpstreamCredential, transport: Transport): Promise<void> {
    await credential.idle(transport);
    const entry = [...this.#entries.values()].find((each) => each.credential === credential);
    if (entry?.users.delete(transport) !== true) return;
    const { key, circuitKey, origin } = entry;
    const circuit = this.#circuits.get(circuitKey);
    if (circuit !== undefined) circuit.users -= 1;
    if (circuit?.users === 0) this.#circuits.delete(circuitKey);
    if (entry.users.size === 0) this.#entries.delete(key);
    if (this.#entries.size === 0) this.#stopCatchingUp();
    const isLeft = Array.from(this.#entries.values()).some((each) => each.origin === origin);
    if (!isLeft) this.#counters.delete(origin);
    await credential.detach(transport);
  }

  async #catchUp(): Promise<void> {
    const learning = [...this.#entries].filter(([, { credential }]) => credential.versions.shared.mayLearn);
    const some = learning.slice(0, MAX_CATCH_UPS);
    for (const [key, entry] of some) {
      // To the end, so that each has its turn.
      this.#entries.delete(key);
      this.#entries.set(key, entry);
    }
    await Promise.all(some.map(([, { credential }]) => credential.catchUp()));
  }

  #stopCatchingUp(): void {
    clearInterval(this.#catchingUp);
    this.#catchingUp = undefined;
  }

  #useCircuit(key: string, perMinute: number): CredentialCircuit {
    const { clock } = this.#deps;
    const entry = this.#circuits.get(key) ?? { circuit: new CredentialCircuit(clock, perMinute), users: 0 };
    this.#circuits.set(key, entry);
    entry.users += 1;
    entry.circuit.perMinute = perMinute;
    return entry.circuit;
  }

  #open(
    set: CredentialSet,
    key: string,
    { options }: Transport,
    circuit: CredentialCircuit,
    attemptsWhenRefused: number,
  ): UpstreamCredential {
    const { store, clock, recorder, onRotation, onHealth } = this.#deps;
    const { deployment, origin } = options;
    const counters = this.#counters.get(origin) ?? new NonceCounters();
    this.#counters.set(origin, counters);
    const recorded = recorder.credential(deployment, set.name);
    const deps = { ...this.#deps, counters, recorded };
    return new UpstreamCredential(set, {
      deployment,
      circuit,
      refusedTargets: new RefusedTargets(clock, attemptsWhenRefused),
      clock,
      store,
      key,
      open: (credential, renew) => new CredentialVersion(credential, options, deps, renew),
      recorder,
      recorded,
      onRotation,
      onHealth,
    });
  }
}
