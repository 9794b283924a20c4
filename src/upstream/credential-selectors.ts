import type { Cancellation } from '../base/cancellation.ts';
import { serializeKey } from '../challenges/store/store.ts';
import type { CredentialSet } from '../credentials/credentials.ts';
import { AttemptBudget } from '../handshake/attempt-budget.ts';
import type { UpstreamRequest } from '../handshake/request.ts';
import type { ResponseHandler } from '../handshake/response-handler.ts';
import { egressAddress } from '../transport/egress.ts';
import { trustOf } from '../transport/upstream-tls.ts';
import { CredentialCircuit } from './credential-circuit.ts';
import { CredentialSelector, type RotationNews } from './credential-selector.ts';
import { CredentialVersion, type Transport, type VersionDeps } from './credential-version.ts';

export interface DeploymentRotation extends RotationNews {
  readonly deployment: string;
}

export interface SelectorsDeps extends VersionDeps {
  /** Called when a candidate of a deployment was promoted or refused. */
  readonly onRotation: (rotation: DeploymentRotation) => void;
}

/** The use of a selector by one upstream. */
export interface SelectorUse {
  readonly selector: CredentialSelector;
  /** Sends a client's request over the connections of this upstream: `CredentialSelector.send`. */
  send(request: UpstreamRequest, handler: ResponseHandler, cancellation: Cancellation): Promise<void>;
  /** Ends this use when its last request is over; the caller sends no new ones. Can be called again. */
  end(): Promise<void>;
}

interface SelectorEntry {
  readonly selector: CredentialSelector;
  users: number;
}

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
    const entry = known ?? { selector: this.#open(set, transport, circuit.circuit), users: 0 };
    this.#selectors.set(key, entry);
    entry.users += 1;
    const { selector } = entry;
    selector.attach(transport);
    let underWay = 0;
    let onIdle: (() => void) | undefined;
    const end = async (): Promise<void> => {
      if (underWay > 0) {
        await new Promise<void>((resolve) => {
          onIdle = resolve;
        });
      }
      circuit.users -= 1;
      if (circuit.users === 0) this.#circuits.delete(circuitKey);
      entry.users -= 1;
      if (entry.users === 0) this.#selectors.delete(key);
      await selector.detach(transport);
    };
    let ending: Promise<void> | undefined;
    return {
      selector,
      send: async (request, handler, cancellation) => {
        const { exchange } = transport;
        const budget = new AttemptBudget();
        underWay += 1;
        try {
          await selector.send({ request, handler, cancellation, transport, exchange, budget });
        } finally {
          underWay -= 1;
          if (underWay === 0) onIdle?.();
        }
      },
      end: () => {
        ending ??= end();
        return ending;
      },
    };
  }

  #useCircuit(key: string, perMinute: number): CircuitEntry {
    const { clock } = this.#deps;
    const entry = this.#circuits.get(key) ?? { circuit: new CredentialCircuit(clock, perMinute), users: 0 };
    this.#circuits.set(key, entry);
    entry.users += 1;
    entry.circuit.perMinute = perMinute;
    return entry;
  }

  #open(set: CredentialSet, { options }: Transport, circuit: CredentialCircuit): CredentialSelector {
    const { clock, onRotation } = this.#deps;
    const { deployment } = options;
    return new CredentialSelector(set, {
      circuit,
      clock,
      open: (credential, owner) => new CredentialVersion(credential, options, this.#deps, owner),
      onRotation: (rotation) => onRotation({ deployment, ...rotation }),
    });
  }
}
