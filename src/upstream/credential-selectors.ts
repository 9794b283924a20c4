import { reportError } from '../base/report-error.ts';
import { NonceCounters } from '../challenges/nonce.ts';
import { serializeKey } from '../challenges/store/store.ts';
import type { CredentialSet } from '../credentials/credentials.ts';
import { egressAddress } from '../transport/egress.ts';
import { trustOf } from '../transport/upstream-tls.ts';
import { CredentialCircuit } from './credential-circuit.ts';
import { CredentialSelector } from './credential-selector.ts';
import { CredentialVersion, type Transport, type VersionDeps } from './credential-version.ts';
import { RefusedTargets } from './refused-targets.ts';
import type { RotationNews } from './rotation.ts';

export interface DeploymentRotation extends RotationNews {
  readonly deployment: string;
}

export interface SelectorsDeps extends Omit<VersionDeps, 'counters'> {
  /** Called when a candidate of a deployment was promoted or refused. */
  readonly onRotation: (rotation: DeploymentRotation) => void;
}

/** The use of a selector by one upstream. */
export class SelectorUse {
  readonly selector: CredentialSelector;
  readonly #onEnd: () => Promise<void>;
  #underWay = 0;
  #onIdle: (() => void) | undefined;
  #ending: Promise<void> | undefined;

  constructor(selector: CredentialSelector, onEnd: () => Promise<void>) {
    this.selector = selector;
    this.#onEnd = onEnd;
  }

  /** A request begins; the caller calls `leave` when it is over. */
  enter(): void {
    this.#underWay += 1;
  }

  leave(): void {
    this.#underWay -= 1;
    if (this.#underWay === 0) this.#onIdle?.();
  }

  /** Ends this use when its last request is over; the caller sends no new ones. Can be called again. */
  end(): Promise<void> {
    this.#ending ??= this.#end();
    return this.#ending;
  }

  async #end(): Promise<void> {
    if (this.#underWay > 0) {
      await new Promise<void>((resolve) => {
        this.#onIdle = resolve;
      });
    }
    await this.#onEnd();
  }
}

interface SelectorEntry {
  readonly selector: CredentialSelector;
  readonly origin: string;
  users: number;
}

/** Between two looks at what other processes have seen of credentials, in milliseconds. */
const CATCH_UP_MS = 1_000;
/** Credentials in one look: each costs calls to the store. */
const MAX_CATCH_UPS = 50;

interface CircuitEntry {
  readonly circuit: CredentialCircuit;
  users: number;
}

/**
 * The credential selectors of this process, one for each credential at one upstream. Upstreams that are the same to
 * the outside, as before and after a reload, use the same selector, so that nothing that is known of a credential or
 * is being found out begins anew.
 */
export class CredentialSelectors {
  readonly #deps: SelectorsDeps;
  readonly #selectors = new Map<string, SelectorEntry>();
  /** By deployment and credential: what a minute allows does not depend on how the upstream is reached. */
  readonly #circuits = new Map<string, CircuitEntry>();
  #catchingUp: NodeJS.Timeout | undefined;
  /** By origin: a server may give one nonce to all who ask at once, and its count goes on for each answer to it. */
  readonly #counters = new Map<string, NonceCounters>();

  constructor(deps: SelectorsDeps) {
    this.#deps = deps;
  }

  /** The selector of this credential; if nobody uses it, it is made from what the sources hold. */
  use(set: CredentialSet, transport: Transport, attemptsWhenRefused: number): SelectorUse {
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
    const known = this.#selectors.get(key);
    const selectorOf = (): CredentialSelector =>
      this.#open(set, transport, circuit.circuit, attemptsWhenRefused);
    const entry = known ?? { selector: selectorOf(), origin, users: 0 };
    this.#selectors.set(key, entry);
    this.#catchingUp ??= setInterval(() => void this.#catchUp().catch(reportError), CATCH_UP_MS).unref();
    entry.users += 1;
    const { selector } = entry;
    selector.attach(transport);
    return new SelectorUse(selector, async () => {
      circuit.users -= 1;
      if (circuit.users === 0) this.#circuits.delete(circuitKey);
      entry.users -= 1;
      if (entry.users === 0) this.#selectors.delete(key);
      if (this.#selectors.size === 0) this.#stopCatchingUp();
      const isLeft = Array.from(this.#selectors.values()).some((each) => each.origin === origin);
      if (!isLeft) this.#counters.delete(origin);
      await selector.detach(transport);
    });
  }

  async #catchUp(): Promise<void> {
    const learning = [...this.#selectors].filter(([, { selector }]) => selector.trialOfNext.mayLearn);
    const some = learning.slice(0, MAX_CATCH_UPS);
    for (const [key, entry] of some) {
      // To the end, so that each has its turn.
      this.#selectors.delete(key);
      this.#selectors.set(key, entry);
    }
    await Promise.all(some.map(([, { selector }]) => selector.trialOfNext.catchUp()));
  }

  #stopCatchingUp(): void {
    clearInterval(this.#catchingUp);
    this.#catchingUp = undefined;
  }

  #useCircuit(key: string, perMinute: number): CircuitEntry {
    const { clock } = this.#deps;
    const entry = this.#circuits.get(key) ?? { circuit: new CredentialCircuit(clock, perMinute), users: 0 };
    this.#circuits.set(key, entry);
    entry.users += 1;
    entry.circuit.perMinute = perMinute;
    return entry;
  }

  #open(
    set: CredentialSet,
    { options }: Transport,
    circuit: CredentialCircuit,
    attemptsWhenRefused: number,
  ): CredentialSelector {
    const { clock, onRotation } = this.#deps;
    const { deployment, origin } = options;
    const counters = this.#counters.get(origin) ?? new NonceCounters();
    this.#counters.set(origin, counters);
    const deps = { ...this.#deps, counters };
    return new CredentialSelector(set, {
      circuit,
      refusedTargets: new RefusedTargets(clock, attemptsWhenRefused),
      clock,
      open: (credential, owner) => new CredentialVersion(credential, options, deps, owner),
      onRotation: (rotation) => onRotation({ deployment, ...rotation }),
    });
  }
}
