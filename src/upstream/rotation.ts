/**
 * State of one version in the rotation of a credential. `candidate`: is to be tried; `waiting`: is the next one, and
 * the upstream does not accept it yet; `fallback`: was in use, or was found not to be needed; `rejected`: a trial
 * failed, so that no further request tries it.
 */
export type RotationState = 'in-use' | 'candidate' | 'waiting' | 'fallback' | 'rejected';

/**
 * `promoted`: takes the place of the version in use; `replaced`: another one did; `rejected`: its trial failed;
 * `postponed`: it is not to be tried now; `due`: it is to be tried again.
 */
type RotationEvent = 'promoted' | 'replaced' | 'rejected' | 'postponed' | 'due';

/** An event that a state does not list changes nothing. */
const TRANSITIONS: Readonly<Record<RotationState, Partial<Record<RotationEvent, RotationState>>>> = {
  'in-use': { replaced: 'fallback' },
  candidate: { promoted: 'in-use', rejected: 'rejected', postponed: 'waiting' },
  waiting: { promoted: 'in-use', due: 'candidate' },
  fallback: { promoted: 'in-use' },
  rejected: { promoted: 'in-use' },
};

/** The upstream began to refuse a version, or accepts it again. */
export interface CredentialNews {
  readonly deployment: string;
  readonly credential: string;
  readonly version: string;
  readonly refused: boolean;
}

/** A candidate was tried. */
export interface RotationNews {
  readonly deployment: string;
  readonly credential: string;
  /** The version in use so far. */
  readonly from: string;
  /** The candidate. */
  readonly to: string;
  /**
   * `refused`: by its Digest, or since it got a failure where the version in use does not; `waiting`: the same of the
   * next version, which the upstream need not accept yet.
   */
  readonly result: 'promoted' | 'refused' | 'waiting';
}

interface Entry<V> {
  readonly version: V;
  state: RotationState;
  /** Its place in the sources of the credential; undefined: they do not hold it. */
  role: 'current' | 'next' | undefined;
}

/**
 * The versions of one credential and the state of each. Exactly one is in use; the others follow in the order in which
 * they take its place.
 */
export class Rotation<V> {
  // Only the rotation changes these.
  inUse: V;
  /** Those that are not in use. */
  others: readonly V[] = [];
  /** The one in use first. */
  #entries: readonly Entry<V>[];

  constructor(inUse: V) {
    this.inUse = inUse;
    this.#entries = [{ version: inUse, state: 'in-use', role: 'current' }];
  }

  /** All versions, the one in use first. */
  get versions(): readonly V[] {
    return [this.inUse, ...this.others];
  }

  get candidates(): readonly V[] {
    return this.#entries.flatMap(({ version, state }) => (state === 'candidate' ? [version] : []));
  }

  /** The next version, if the upstream does not accept it yet. */
  get waiting(): V | undefined {
    return this.#entries.find(({ state }) => state === 'waiting')?.version;
  }

  isNext(version: V): boolean {
    return this.#find(version)?.role === 'next';
  }

  /** Undefined: the version is not part of the rotation any more. */
  stateOf(version: V): RotationState | undefined {
    return this.#find(version)?.state;
  }

  /**
   * Sets the versions that the sources hold now: the current one, and the next one if there is one. New ones become
   * candidates, and so does one that waited and is the current one now; others that the sources no longer hold leave,
   * except the one in use and `former`, which may be needed. Returns the versions that left.
   */
  offer(current: V, next?: V, former: readonly V[] = []): V[] {
    const before = this.#entries;
    const [inUse] = before as readonly [Entry<V>];
    inUse.role = inUse.version === current ? 'current' : inUse.version === next ? 'next' : undefined;
    const others: Entry<V>[] = [];
    if (inUse.version !== current) others.push(offered(this.#find(current), current, 'current'));
    if (next !== undefined && inUse.version !== next) others.push(offered(this.#find(next), next, 'next'));
    for (const version of former) {
      if (version !== inUse.version)
        others.push(this.#find(version) ?? { version, state: 'fallback', role: undefined });
    }
    this.#set(inUse, others);
    return before.flatMap((entry) => (this.#entries.includes(entry) ? [] : [entry.version]));
  }

  /**
   * Takes over the state of each version in another rotation; false: it does not have the one in use here, or the other
   * way round, and nothing changes.
   */
  takeOver(stateOf: (version: V) => RotationState | undefined): boolean {
    const inUse = this.#entries.find(({ version }) => stateOf(version) === 'in-use');
    if (inUse === undefined || stateOf(this.inUse) === undefined) return false;
    for (const entry of this.#entries) entry.state = stateOf(entry.version) ?? entry.state;
    const others = this.#entries.filter((entry) => entry !== inUse);
    this.#set(inUse, others);
    return true;
  }

  /**
   * Puts a version in use. The former one stays as fallback if the sources hold it or `keepsFormer` is true. Returns
   * the version that left; undefined: none.
   */
  promote(version: V, keepsFormer: boolean): V | undefined {
    const [former, ...others] = this.#entries as readonly [Entry<V>, ...Entry<V>[]];
    const promoted = others.find((entry) => entry.version === version);
    if (promoted === undefined) return undefined;
    advance(promoted, 'promoted');
    advance(former, 'replaced');
    const stays = former.role !== undefined || keepsFormer;
    const rest = others.filter((entry) => entry !== promoted);
    this.#set(promoted, [...(stays ? [former] : []), ...rest]);
    return stays ? undefined : former.version;
  }

  /** Rejects a candidate; the next one waits instead. Returns its result; undefined: it is not a candidate. */
  reject(version: V): 'rejected' | 'waiting' | undefined {
    if (this.isNext(version)) return this.postpone(version) ? 'waiting' : undefined;
    return this.#advance(version, 'rejected') ? 'rejected' : undefined;
  }

  /** A candidate is not to be tried now; false: it is none. */
  postpone(version: V): boolean {
    return this.#advance(version, 'postponed');
  }

  /** A version that waits is to be tried again; false: it does not wait. */
  retry(version: V): boolean {
    return this.#advance(version, 'due');
  }

  #set(inUse: Entry<V>, others: readonly Entry<V>[]): void {
    this.#entries = [inUse, ...others];
    this.inUse = inUse.version;
    this.others = others.map(({ version }) => version);
  }

  #find(version: V): Entry<V> | undefined {
    return this.#entries.find((entry) => entry.version === version);
  }

  #advance(version: V, event: RotationEvent): boolean {
    const entry = this.#find(version);
    return entry !== undefined && advance(entry, event);
  }
}

function offered<V>(known: Entry<V> | undefined, version: V, role: 'current' | 'next'): Entry<V> {
  if (known === undefined) return { version, state: 'candidate', role };
  if (role === 'current') advance(known, 'due');
  known.role = role;
  return known;
}

function advance(entry: Entry<unknown>, event: RotationEvent): boolean {
  const next = TRANSITIONS[entry.state][event];
  if (next === undefined) return false;
  entry.state = next;
  return true;
}
