const LEAST_BYTES = 64 * 1024;
/** A buffer that a burst has made larger is given up when it is cleared. */
const MOST_KEPT = 1024 * 1024;
/** A UTF-16 code unit takes at most three bytes in UTF-8. */
const BYTES_PER_UNIT = 3;

/**
 * Lines as bytes in one buffer that is used again and again. As strings they would live long enough to be copied by
 * every garbage collection.
 */
export class LineBuffer {
  #bytes = Buffer.allocUnsafeSlow(LEAST_BYTES);
  #size = 0;

  /** Bytes of all lines. */
  get size(): number {
    return this.#size;
  }

  /** The lines; valid until the next change. */
  get bytes(): Buffer {
    return this.#bytes.subarray(0, this.#size);
  }

  /** Adds a line, given with its line end. */
  add(line: string): void {
    this.#makeRoom(line.length * BYTES_PER_UNIT);
    this.#size += this.#bytes.write(line, this.#size);
  }

  /** Adds a part of a block. */
  copy(block: Buffer, start = 0, end = block.length): void {
    this.#makeRoom(end - start);
    this.#size += block.copy(this.#bytes, this.#size, start, end);
  }

  /** The lines and one more, which is not added; valid as long as `bytes`. */
  followedBy(line: string): Buffer {
    this.#makeRoom(line.length * BYTES_PER_UNIT);
    return this.#bytes.subarray(0, this.#size + this.#bytes.write(line, this.#size));
  }

  /** Removes the first bytes. */
  drop(count: number): void {
    this.#bytes.copyWithin(0, count, this.#size);
    this.#size -= count;
  }

  clear(): void {
    this.#size = 0;
    if (this.#bytes.length > MOST_KEPT) this.#bytes = Buffer.allocUnsafeSlow(LEAST_BYTES);
  }

  #makeRoom(more: number): void {
    const needed = this.#size + more;
    if (needed <= this.#bytes.length) return;
    const larger = Buffer.allocUnsafeSlow(Math.max(needed, this.#bytes.length * 2));
    this.#bytes.copy(larger, 0, 0, this.#size);
    this.#bytes = larger;
  }
}
