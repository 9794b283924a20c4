/** Maps prefixes to values. A lookup costs one step per distinct length, not per prefix. */
export class PrefixMap<T> {
  readonly #values = new Map<string, T>();
  /** Distinct lengths, the longest first. */
  readonly #lengths: readonly number[];

  /** The first entry of a prefix wins. */
  constructor(entries: Iterable<readonly [prefix: string, value: T]>) {
    for (const [prefix, value] of entries) if (!this.#values.has(prefix)) this.#values.set(prefix, value);
    const lengths = new Set(Array.from(this.#values.keys(), ({ length }) => length));
    this.#lengths = [...lengths].sort((a, b) => b - a);
  }

  get size(): number {
    return this.#values.size;
  }

  /**
   * Returns the value of the longest prefix of the text for which `mayEnd` is true; undefined if there is
   * none.
   */
  longest(text: string, mayEnd: (text: string, length: number) => boolean = () => true): T | undefined {
    for (const length of this.#lengths) {
      if (length > text.length || !mayEnd(text, length)) continue;
      const value = this.#values.get(text.slice(0, length));
      if (value !== undefined) return value;
    }
    return undefined;
  }
}
