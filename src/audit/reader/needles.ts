import { NEWLINE } from '../line.ts';

/** Finds the lines of a block that have one of the needles in them, without looking at the others. */
export class Needles {
  readonly #needles: readonly Buffer[];
  #block: Buffer = Buffer.alloc(0);
  /** Where each is next, or was last looked for. */
  #next: number[] = [];

  /** None at all: every line is taken. */
  constructor(needles: readonly Buffer[]) {
    this.#needles = needles;
  }

  /** Where the next line that has one begins, from the beginning of a line on; -1: there is none. */
  lineFrom(block: Buffer, start: number): number {
    if (this.#needles.length === 0) return start;
    if (block !== this.#block) {
      this.#block = block;
      this.#next = this.#needles.map(() => start - 1);
    }
    let nearest = block.length;
    for (const [index, needle] of this.#needles.entries()) {
      let at = this.#next[index] ?? start;
      if (at < start) {
        at = block.indexOf(needle, start);
        if (at === -1) at = block.length;
        this.#next[index] = at;
      }
      nearest = Math.min(nearest, at);
    }
    return nearest === block.length ? -1 : block.lastIndexOf(NEWLINE, nearest) + 1;
  }
}
