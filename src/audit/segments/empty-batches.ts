/** Bytes of batches without a new record, beyond those that other batches allow, after which a segment is not read on. */
const MAX_EMPTY = 4 * 1024 * 1024;
/** Bytes of such batches that one with new records allows: a signed head follows it, and the seal of a start. */
const ALLOWED = 4096;

interface BatchFacts {
  readonly records: number;
  /** Number of the last record. */
  readonly last: number;
  readonly bytes: number;
  /** True: its seal fits it, and the key of the segment made the seal, if that is at hand. */
  readonly asSealed: boolean;
  readonly hasKey: boolean;
}

/**
 * Counts the batches of a segment that have no new record. A gateway writes few of them, but zstd makes a few KB of a
 * million: without a bound, such a file keeps every reader busy.
 */
export class EmptyBatches {
  #last = 0;
  #bytes = 0;

  add({ records, last, bytes, asSealed, hasKey }: BatchFacts): void {
    // Nobody without the key can make an empty batch that it seals.
    if (asSealed && hasKey && records === 0) return;
    if (asSealed && records > 0 && last > this.#last) {
      this.#last = last;
      this.#bytes = Math.max(0, this.#bytes - ALLOWED);
    } else {
      this.#bytes += bytes;
    }
  }

  /** True if no gateway wrote the segment as it is. */
  get isExceeded(): boolean {
    return this.#bytes > MAX_EMPTY;
  }
}
