import { createHmac, randomBytes } from 'node:crypto';
import { getOrInsert } from '../base/maps.ts';
import type { Credential as DigestCredential } from '../digest/authorization.ts';

/** A credential for Digest authentication. */
export type Credential = DigestCredential & {
  readonly name: string;
  /** An ordinal number; changes whenever the content changes, and reveals nothing about it. */
  readonly version: string;
  /** Time of the latest change of its parts; undefined if unknown. */
  readonly changedAt: Date | undefined;
};

export interface CredentialSet {
  readonly name: string;
  readonly current: Credential;
  /** The next version, which is tested before it replaces `current`. */
  readonly next: Credential | undefined;
  /** Versions in use that the sources do not hold any more. */
  readonly former?: readonly Credential[];
}

/**
 * Assigns versions to contents of credentials during the life of a process: equal contents have equal
 * versions, a new content a higher one. Contents are stored as keyed hashes; the key never leaves this
 * object.
 */
export class CredentialVersions {
  readonly #key = randomBytes(32);
  readonly #known = new Map<string, { readonly byMark: Map<string, string>; highest: number }>();

  /** `proposed`: the version in the sealed file; used if it is higher than every version so far. */
  versionOf(name: string, content: readonly string[], proposed = 1): string {
    const mark = createHmac('sha256', this.#key).update(JSON.stringify(content)).digest('base64');
    const known = getOrInsert(this.#known, name, () => ({ byMark: new Map<string, string>(), highest: 0 }));
    return getOrInsert(known.byMark, mark, () => {
      known.highest = Math.max(known.highest + 1, proposed);
      return String(known.highest);
    });
  }
}

/**
 * Adds to new sets the versions that are in use and not in their sources any more: the upstream may refuse what is there
 * now, and who builds its parts from these sets later must not be without a version that works. `inUse`: the versions in
 * use of each credential.
 */
export function keepInUse(
  before: ReadonlyMap<string, CredentialSet>,
  after: ReadonlyMap<string, CredentialSet>,
  inUse: ReadonlyMap<string, ReadonlySet<string>>,
): ReadonlyMap<string, CredentialSet> {
  const kept = new Map(after);
  for (const [name, set] of after) {
    const old = before.get(name);
    const used = inUse.get(name);
    if (old === undefined || used === undefined) continue;
    const held = [set.current.version, set.next?.version];
    const former = [old.current, ...(old.next === undefined ? [] : [old.next]), ...(old.former ?? [])].filter(
      ({ version }) => used.has(version) && !held.includes(version),
    );
    if (former.length > 0) kept.set(name, { ...set, former });
  }
  return kept;
}

/** The next versions that their sources held `before`, and do not hold `after`, though the current ones stay. */
export function withdrawnBetween(
  before: ReadonlyMap<string, CredentialSet>,
  after: ReadonlyMap<string, CredentialSet>,
): readonly Credential[] {
  return [...before.values()].flatMap(({ name, current, next }) => {
    if (next === undefined) return [];
    const set = after.get(name);
    const isWithdrawn = set?.current.version === current.version && set.next?.version !== next.version;
    return isWithdrawn ? [next] : [];
  });
}
