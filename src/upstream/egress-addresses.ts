import { isDeepStrictEqual } from 'node:util';
import type { Clock } from '../base/clock.ts';
import { isOnThisHost } from '../transport/egress.ts';

/**
 * `missing`: this host does not have it. `refused`: the upstream did not accept it. `standby`: requests leave from an
 * earlier one.
 */
export type EgressStatus = 'in-use' | 'standby' | 'refused' | 'missing';

export interface EgressState {
  readonly address: string;
  readonly status: EgressStatus;
  /** The outcome by which the upstream refused it; empty: it has not. */
  readonly outcome: string;
}

/** One of several local addresses of a deployment can be used no more, or again. */
export interface EgressNews extends EgressState {
  readonly deployment: string;
}

/** The local address that a request leaves from. */
export interface EgressChoice {
  /** Its position in the configuration. */
  readonly index: number;
  readonly address: string;
  /** When it was chosen, on the clock of the process, in milliseconds. */
  readonly at: number;
  /** How many others the request may still leave from. */
  readonly left: number;
  /** True if the request tries an address that was refused. */
  readonly isTrial: boolean;
}

export interface EgressAddressesOptions {
  readonly deployment: string;
  /** The preferred one first; empty: the system chooses. */
  readonly localAddresses: readonly string[];
  /** How long after a refusal a request may try an address again, in milliseconds. */
  readonly failback: number;
}

export interface EgressAddressesDeps {
  readonly clock: Clock;
  /** Called if one of several can be used no more, or again. */
  readonly onEgress: (news: EgressNews) => void;
  /** Undefined: not known. Left out: asks the system. */
  readonly isPresent?: (address: string) => Promise<boolean | undefined>;
}

interface Entry {
  readonly index: number;
  readonly address: string;
  isMissing: boolean;
  /** Empty: the upstream has not refused it. */
  refusedBy: string;
  /** When it was last found that the upstream refuses it, or accepts it again. */
  verdictAt: number;
  /** When a request may try it after a refusal. */
  tryAt: number;
}

/**
 * The local addresses of a deployment. Requests leave from the first one that this host has and that the upstream has not
 * refused. An address is used again as soon as the host has it again, and after a refusal when a request that can be
 * repeated, one per `failback`, got a response below 400 over it.
 */
export class EgressAddresses {
  readonly #options: EgressAddressesOptions;
  readonly #deps: EgressAddressesDeps;
  readonly #entries: readonly Entry[];
  /** True if a request that does not get on from one may get on from another. */
  readonly areSeveral: boolean;

  /**
   * Returns those of a deployment. `before`: those so far, which stay with what is known of them if they are the same.
   */
  static of(
    { deployment, localAddresses, failback }: EgressAddressesOptions,
    deps: EgressAddressesDeps,
    before: EgressAddresses | undefined,
  ): EgressAddresses {
    const own = { deployment, localAddresses, failback };
    return before !== undefined && isDeepStrictEqual(before.#options, own)
      ? before
      : new EgressAddresses(own, deps);
  }

  constructor(options: EgressAddressesOptions, deps: EgressAddressesDeps) {
    this.#options = options;
    this.#deps = deps;
    this.#entries = options.localAddresses.map((address, index) => ({
      index,
      address,
      isMissing: false,
      refusedBy: '',
      verdictAt: Number.NEGATIVE_INFINITY,
      tryAt: 0,
    }));
    this.areSeveral = this.#entries.length > 1;
  }

  /** Position of the address that requests leave from; 0 if the system chooses. */
  get inUse(): number {
    return this.#inUse?.index ?? 0;
  }

  /** The addresses as they are at this moment; empty: the system chooses. */
  async states(): Promise<EgressState[]> {
    await this.look();
    return this.#entries.map((entry) => this.#stateOf(entry));
  }

  /** Chooses the address for a request. `mayTry`: it can be repeated, so that it may try an address after a refusal. */
  choose(mayTry: boolean): EgressChoice {
    const at = this.#deps.clock.now();
    const inUse = this.#inUse;
    if (inUse === undefined) throw new TypeError('there are no local addresses to choose from');
    // While every one is refused, a request loses nothing by a trial.
    const areRefused = inUse.refusedBy !== '';
    const mayBeTried = ({ index }: Entry): boolean =>
      areRefused ? index !== inUse.index : mayTry && index < inUse.index;
    const due = this.#entries.find((entry) => mayBeTried(entry) && isDue(entry, at));
    if (due !== undefined) due.tryAt = at + this.#options.failback;
    const { index, address } = due ?? inUse;
    return { index, address, at, left: this.#entries.length - 1, isTrial: due !== undefined };
  }

  /** A trial got no response. Returns the address in use, from which the request goes on; undefined: there is none. */
  untried({ index, left }: EgressChoice): EgressChoice | undefined {
    const inUse = this.#inUse;
    return inUse !== undefined && inUse.index !== index ? this.#next(inUse, left) : undefined;
  }

  /** This host does not have the address. Returns the one from which the request goes on; undefined: there is none. */
  missing({ index, left }: EgressChoice): EgressChoice | undefined {
    this.#update(index, (entry) => {
      entry.isMissing = true;
    });
    const inUse = this.#inUse;
    return inUse?.isMissing === false ? this.#next(inUse, left) : undefined;
  }

  /** The upstream refused the address. Returns the one from which the request can go on; undefined: there is none. */
  refused({ index, at, left }: EgressChoice, outcome: string): EgressChoice | undefined {
    this.#update(index, (entry) => {
      // It has been accepted since this request left.
      if (at < entry.verdictAt) return;
      entry.refusedBy = outcome;
      entry.verdictAt = this.#deps.clock.now();
      entry.tryAt = entry.verdictAt + this.#options.failback;
    });
    const other = this.#entries.find((entry) => entry.index !== index && isUsable(entry));
    return other && this.#next(other, left);
  }

  /** The upstream responded with this status to a request from the address, and did not refuse it. */
  accepted({ index, at }: EgressChoice, status: number): void {
    const entry = this.#entries[index];
    // The response to a request from before the refusal says nothing of the time after it.
    if (entry === undefined || entry.refusedBy === '' || status >= 400 || at < entry.verdictAt) return;
    this.#update(index, (found) => {
      found.refusedBy = '';
      found.verdictAt = this.#deps.clock.now();
    });
  }

  /** Looks which of the addresses this host has. */
  async look(): Promise<void> {
    const { isPresent = isOnThisHost } = this.#deps;
    const present = await Promise.all(this.#entries.map(({ address }) => isPresent(address)));
    for (const [index, isThere] of present.entries()) {
      if (isThere === undefined) continue;
      this.#update(index, (entry) => {
        entry.isMissing = !isThere;
      });
    }
  }

  /** Where none can be used, a refused one is in use, whose response says more than an error. */
  get #inUse(): Entry | undefined {
    return (
      this.#entries.find(isUsable) ?? this.#entries.find(({ isMissing }) => !isMissing) ?? this.#entries[0]
    );
  }

  #next({ index, address }: Entry, left: number): EgressChoice | undefined {
    return left === 0
      ? undefined
      : { index, address, at: this.#deps.clock.now(), left: left - 1, isTrial: false };
  }

  #stateOf(entry: Entry): EgressState {
    const { address, isMissing, refusedBy: outcome } = entry;
    const working = entry === this.#inUse ? 'in-use' : 'standby';
    return { address, status: isMissing ? 'missing' : outcome !== '' ? 'refused' : working, outcome };
  }

  #update(index: number, change: (entry: Entry) => void): void {
    const entry = this.#entries[index];
    if (entry === undefined) return;
    const { isMissing, refusedBy } = entry;
    change(entry);
    if (!this.areSeveral || (entry.isMissing === isMissing && entry.refusedBy === refusedBy)) return;
    this.#deps.onEgress({ deployment: this.#options.deployment, ...this.#stateOf(entry) });
  }
}

function isUsable({ isMissing, refusedBy }: Entry): boolean {
  return !isMissing && refusedBy === '';
}

/** True if this host has it, and a refusal of the upstream is so long ago that a request may try it. */
function isDue({ isMissing, tryAt }: Entry, now: number): boolean {
  return !isMissing && tryAt <= now;
}
