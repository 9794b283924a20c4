const LEAST_BYTES = 64 * 1024;
/** Memory that a rush of records took and that is not kept after it. */
const MOST_KEPT = 1024 * 1024;
/** A unit of a string is at most three bytes in UTF-8. */
const BYTES_PER_UNIT = 3;

/**
 * Lines on their way into the file, as bytes in one piece of memory that serves batch after batch. Kept as strings
 * they would live long enough to be copied by every collection of garbage.
 */
export class Lines {
  #bytes = Buffer.allocUnsafeSlow(LEAST_BYTES);
  #size = 0;

  /** Bytes of all lines. */
  get size(): number {
    return this.#size;
  }

  /** Adds a line, which has its end. */
  add(line: string): void {
    this.#makeRoom(line);
    this.#size += this.#bytes.write(line, this.#size);
  }

  /** The lines; good until one is added or all are cleared. */
  get bytes(): Buffer {
    return this.#bytes.subarray(0, this.#size);
  }

  /** The lines with one more behind them, which is not added; good as long as `bytes`. */
  followedBy(line: string): Buffer {
    this.#makeRoom(line);
    return this.#bytes.subarray(0, this.#size + this.#bytes.write(line, this.#size));
  }

  clear(): void {
    this.#size = 0;
    if (this.#bytes.length > MOST_KEPT) this.#bytes = Buffer.allocUnsafeSlow(LEAST_BYTES);
  }

  #makeRoom(line: string): void {
    const needed = this.#size + line.length * BYTES_PER_UNIT;
    if (needed <= this.#bytes.length) return;
    const larger = Buffer.allocUnsafeSlow(Math.max(needed, this.#bytes.length * 2));
    this.#bytes.copy(larger, 0, 0, this.#size);
    this.#bytes = larger;
  }
}
