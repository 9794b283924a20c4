const HEADER_BYTES = 8;

/** The input that a thread checks, which another one can read when the check does not end. */
export class SharedInput {
  readonly #header: Int32Array;
  readonly #bytes: Uint8Array;

  constructor(shared: SharedArrayBuffer) {
    this.#header = new Int32Array(shared, 0, 2);
    this.#bytes = new Uint8Array(shared, HEADER_BYTES);
  }

  static allocate(longest: number): SharedArrayBuffer {
    return new SharedArrayBuffer(HEADER_BYTES + longest);
  }

  /** Counts the inputs. */
  get count(): number {
    return Atomics.load(this.#header, 0);
  }

  get input(): Buffer {
    return Buffer.from(this.#bytes.subarray(0, Atomics.load(this.#header, 1)));
  }

  set(input: Uint8Array): void {
    const held = input.subarray(0, this.#bytes.length);
    this.#bytes.set(held);
    Atomics.store(this.#header, 1, held.length);
    Atomics.add(this.#header, 0, 1);
  }
}
