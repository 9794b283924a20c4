import { getOrInsert } from '../base/maps.ts';
import { reportError } from '../base/report-error.ts';
import { NonceCounters } from '../challenges/nonce.ts';
import type { CredentialSet } from '../credentials/credentials.ts';
import { UpstreamCredential } from './credential.ts';
import { CredentialCircuit, RefusedTargets } from './credential-circuit.ts';
import { keyOf, type Transport } from './credential-version.ts';
import type { Versions, VersionsDeps } from './versions.ts';

/** The dependencies of every credential, without those that name one. */
export type RegistryDeps = Omit<VersionsDeps, 'identity' | 'key' | 'counters' | 'recorded'>;

interface Entry {
  readonly credential: UpstreamCredential;
  readonly circuitKey: string;
  readonly origin: string;
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
  readonly #circuits = new Map<string, CredentialCircuit>();
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
    const { deployment, origin } = transport.options;
    const circuitKey = JSON.stringify([deployment, set.name]);
    const newCircuit = () => new CredentialCircuit(this.#deps.clock, attemptsWhenRefused);
    const circuit = getOrInsert(this.#circuits, circuitKey, newCircuit);
    circuit.perMinute = attemptsWhenRefused;
    const key = keyOf(transport.options, set.name, '');
    const open = () => ({ credential: this.#open(set, key, transport, circuit), circuitKey, origin });
    const { credential } = getOrInsert(this.#entries, key, open);
    this.#catchingUp ??= setInterval(() => void this.#catchUp().catch(reportError), CATCH_UP_MS).unref();
    credential.versions.attach(transport);
    return credential;
  }

  /**
   * The upstream of this transport uses the credential no more; the caller sends no new requests. Resolves when the last
   * one is over and the nonces that nobody uses are left to other processes; or, if `use` gets the transport again
   * before, without effect. Can be called again.
   */
  async release({ versions }: UpstreamCredential, transport: Transport): Promise<void> {
    if (!(await versions.drain(transport))) return;
    const detached = versions.detach(transport);
    if (versions.transports.size === 0) this.#forget(versions);
    await detached;
  }

  /** Forgets a credential that no upstream uses, and what it shared with others if it was the last one. */
  #forget(versions: Versions): void {
    const found = [...this.#entries].find(([, { credential }]) => credential.versions === versions);
    if (found === undefined) return;
    const [key, { circuitKey, origin }] = found;
    this.#entries.delete(key);
    const left = [...this.#entries.values()];
    if (!left.some((each) => each.circuitKey === circuitKey)) this.#circuits.delete(circuitKey);
    if (!left.some((each) => each.origin === origin)) this.#counters.delete(origin);
    if (left.length > 0) return;
    clearInterval(this.#catchingUp);
    this.#catchingUp = undefined;
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

  #open(
    set: CredentialSet,
    key: string,
    { options: identity }: Transport,
    circuit: CredentialCircuit,
  ): UpstreamCredential {
    const { clock, recorder } = this.#deps;
    const { deployment, origin } = identity;
    const counters = getOrInsert(this.#counters, origin, () => new NonceCounters());
    const recorded = recorder.credential(deployment, set.name);
    const refusedTargets = new RefusedTargets(clock, circuit.perMinute);
    return new UpstreamCredential(set, {
      ...this.#deps,
      identity,
      key,
      counters,
      recorded,
      circuit,
      refusedTargets,
    });
  }
}
