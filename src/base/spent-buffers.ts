/** Bytes of bodies between two collections. */
const COLLECT_EVERY = 16 * 1024 * 1024;

/**
 * Keeps the process small while large bodies pass. A body goes by in buffers of up to 64 KiB, each outside
 * V8's heap behind a tiny object; V8 counts the objects, so it lets some 80 MiB of spent buffers pile up
 * before it looks. Here the bytes are counted.
 */
export class SpentBuffers {
  readonly #collect: () => void;
  #bytes = 0;

  /** `collect` frees what has become unreachable lately: V8's minor collection. */
  constructor(collect: () => void) {
    this.#collect = collect;
  }

  /** So many bytes of a body have come by. */
  add(bytes: number): void {
    this.#bytes += bytes;
    if (this.#bytes < COLLECT_EVERY) return;
    this.#bytes = 0;
    this.#collect();
  }
}
