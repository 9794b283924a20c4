/** Body bytes between two collections. */
const COLLECT_EVERY = 16 * 1024 * 1024;

/**
 * Limits the memory of used body buffers. A body passes in buffers of up to 64 KiB, each outside V8's heap
 * behind a tiny object. V8 counts the objects, so about 80 MiB of unused buffers accumulate before it
 * collects; this class counts the bytes.
 */
export class BufferGc {
  readonly #collect: () => void;
  #bytes = 0;

  /** @param collect runs V8's minor garbage collection */
  constructor(collect: () => void) {
    this.#collect = collect;
  }

  /** Counts body bytes that have passed. */
  add(bytes: number): void {
    this.#bytes += bytes;
    if (this.#bytes < COLLECT_EVERY) return;
    this.#bytes = 0;
    this.#collect();
  }
}
