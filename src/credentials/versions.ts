import { createHmac, randomBytes } from 'node:crypto';

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
    const known = this.#known.get(name) ?? { byMark: new Map<string, string>(), highest: 0 };
    this.#known.set(name, known);
    const same = known.byMark.get(mark);
    if (same !== undefined) return same;
    known.highest = Math.max(known.highest + 1, proposed);
    const version = String(known.highest);
    known.byMark.set(mark, version);
    return version;
  }
}
