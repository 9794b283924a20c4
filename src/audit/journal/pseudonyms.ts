import { type AuditKeys, pseudonymOf } from '../keys.ts';

/** Pseudonyms that are remembered. */
const MOST = 4096;

/** What is recorded instead of values that are not to be; each is computed once in a while. */
export class Pseudonyms {
  readonly #keys: AuditKeys;
  readonly #known = new Map<string, string>();

  constructor(keys: AuditKeys) {
    this.#keys = keys;
  }

  of(value: string): string {
    const known = this.#known.get(value);
    if (known !== undefined) return known;
    if (this.#known.size >= MOST) this.#known.clear();
    const pseudonym = pseudonymOf(this.#keys, value);
    this.#known.set(value, pseudonym);
    return pseudonym;
  }
}
