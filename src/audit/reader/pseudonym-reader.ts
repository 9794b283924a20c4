import { fileMessageOf } from '../../base/error-code.ts';
import { KEY_ID_LENGTH, type PseudonymKey, revealJson } from '../pseudonym.ts';
import { allKeys } from '../segments/pseudonym-files.ts';

/** The keys of pseudonyms that are at hand. Without its key, a pseudonym stays as it is. */
export class PseudonymReader {
  readonly #keys = new Map<string, PseudonymKey>();

  constructor(keys: readonly PseudonymKey[]) {
    for (const key of keys) this.#keys.set(key.id, key);
  }

  /**
   * Reads the keys of a directory; `directory` undefined, or absent: there are none. What cannot be read is named to
   * `onIssue`, with the reason.
   */
  static async open(
    directory: string | undefined,
    onIssue: (issue: string) => void,
  ): Promise<PseudonymReader> {
    if (directory === undefined) return NO_PSEUDONYMS;
    try {
      const placed = await allKeys(directory, onIssue, ({ message }) => onIssue(message));
      return new PseudonymReader(placed.map(({ key }) => key));
    } catch (error) {
      onIssue(fileMessageOf(error));
      return NO_PSEUDONYMS;
    }
  }

  /** True: there is no key. */
  get isEmpty(): boolean {
    return this.#keys.size === 0;
  }

  /** True if the id of a key that is at hand begins there. */
  hasKeyAt(bytes: Buffer, start: number): boolean {
    return !this.isEmpty && this.#keys.has(bytes.toString('latin1', start, start + KEY_ID_LENGTH));
  }

  /** Replaces the pseudonyms in a JSON text by their values. */
  reveal(json: string): string {
    return this.isEmpty ? json : revealJson(json, (id) => this.#keys.get(id));
  }

  /** The value of a text that may be a pseudonym. */
  valueOf(text: string): string {
    return JSON.parse(this.reveal(JSON.stringify(text)));
  }

  /** The pseudonyms that an address with these forms may have. */
  formsOf(forms: readonly string[]): string[] {
    const keys = [...this.#keys.values()].filter(
      ({ scope, subject }) => scope !== 'address' || forms.includes(subject),
    );
    return keys.flatMap((key) => forms.map((form) => key.hide(form)));
  }
}

export const NO_PSEUDONYMS = new PseudonymReader([]);
