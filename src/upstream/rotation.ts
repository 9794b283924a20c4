/**
 * State of one version in the rotation of a credential. `candidate`: waits for its trial; `fallback`: was in use, or
 * was found not to be needed; `rejected`: a trial failed, so that no further request tries it.
 */
export type RotationState = 'in-use' | 'candidate' | 'fallback' | 'rejected';

/** A candidate was tried. */
export interface RotationNews {
  readonly credential: string;
  /** The version in use so far. */
  readonly from: string;
  /** The candidate. */
  readonly to: string;
  /** `refused`: by its Digest, or since it got a failure where the version in use does not. */
  readonly result: 'promoted' | 'refused';
}

/** `promoted`: takes the place of the version in use; `replaced`: another one did; `rejected`: its trial failed. */
type RotationEvent = 'promoted' | 'replaced' | 'rejected';

/** An event that a state does not list changes nothing. */
const TRANSITIONS: Readonly<Record<RotationState, Partial<Record<RotationEvent, RotationState>>>> = {
  'in-use': { replaced: 'fallback' },
  candidate: { promoted: 'in-use', rejected: 'rejected' },
  fallback: { promoted: 'in-use' },
  rejected: { promoted: 'in-use' },
};

interface Entry<V> {
  readonly version: V;
  state: RotationState;
  /** True if the sources of the credential hold it. */
  wanted: boolean;
}

/**
 * The versions of one credential and the state of each. Exactly one is in use; the others follow in the order in which
 * they take its place.
 */
export class Rotation<V> {
  #entries: readonly Entry<V>[];

  constructor(inUse: V) {
    this.#entries = [{ version: inUse, state: 'in-use', wanted: true }];
  }

  get inUse(): V {
    const [{ version }] = this.#entries as readonly [Entry<V>];
    return version;
  }

  /** All versions, the one in use first. */
  get versions(): readonly V[] {
    return this.#entries.map(({ version }) => version);
  }

  get others(): readonly V[] {
    return this.versions.slice(1);
  }

  get candidates(): readonly V[] {
    return this.#entries.flatMap(({ version, state }) => (state === 'candidate' ? [version] : []));
  }

  get hasCandidates(): boolean {
    return this.#entries.some(({ state }) => state === 'candidate');
  }

  get hasOthers(): boolean {
    return this.#entries.length > 1;
  }

  /** Undefined: the version is not part of the rotation any more. */
  stateOf(version: V): RotationState | undefined {
    return this.#entries.find((entry) => entry.version === version)?.state;
  }

  /**
   * Sets the versions that the sources hold now, in their order. New ones become candidates; others that the sources
   * no longer hold leave, except the one in use. Returns the versions that left.
   */
  offer(wanted: readonly V[]): V[] {
    const before = this.#entries;
    const [inUse] = before as readonly [Entry<V>];
    inUse.wanted = wanted.includes(inUse.version);
    const others = wanted.filter((version) => version !== inUse.version);
    this.#entries = [inUse, ...others.map((version) => wantedEntry(before, version))];
    return before.flatMap((entry) => (this.#entries.includes(entry) ? [] : [entry.version]));
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
    const stays = former.wanted || keepsFormer;
    const rest = others.filter((entry) => entry !== promoted);
    this.#entries = [promoted, ...(stays ? [former] : []), ...rest];
    return stays ? undefined : former.version;
  }

  /** Rejects a candidate; false: it is none. */
  reject(version: V): boolean {
    const entry = this.#entries.find((each) => each.version === version);
    return entry !== undefined && advance(entry, 'rejected');
  }
}

function wantedEntry<V>(known: readonly Entry<V>[], version: V): Entry<V> {
  const entry = known.find((each) => each.version === version) ?? {
    version,
    state: 'candidate',
    wanted: true,
  };
  entry.wanted = true;
  return entry;
}

function advance(entry: Entry<unknown>, event: RotationEvent): boolean {
  const next = TRANSITIONS[entry.state][event];
  if (next === undefined) return false;
  entry.state = next;
  return true;
}
