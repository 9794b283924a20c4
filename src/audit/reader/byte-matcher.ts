import { NEWLINE } from '../line.ts';
import type { PseudonymReader } from './pseudonym-reader.ts';

/** Bytes to look for. `unless`: a pseudonym begins there, which does not count if its key is one of these. */
export class Pattern {
  readonly #bytes: Buffer;
  readonly #unless: PseudonymReader | undefined;

  constructor(text: string, unless?: PseudonymReader) {
    this.#bytes = Buffer.from(text);
    this.#unless = unless;
  }

  /** The index in the bytes, from `start` on; -1: it is not there. */
  indexIn(bytes: Buffer, start = 0): number {
    let at = bytes.indexOf(this.#bytes, start);
    while (at !== -1 && this.#unless?.hasKeyAt(bytes, at + this.#bytes.length) === true) {
      at = bytes.indexOf(this.#bytes, at + 1);
    }
    return at;
  }
}

/** True if the line has at least one pattern of each group. */
export function hasEach(line: Buffer, groups: readonly Pattern[][]): boolean {
  return groups.every((group) => group.some((pattern) => pattern.indexIn(line) !== -1));
}

/** Finds the lines of a block that contain one of several patterns, without reading the other lines. */
export class ByteMatcher {
  readonly #patterns: readonly Pattern[];
  #block: Buffer = Buffer.alloc(0);
  /** The next index of each pattern; the block's length if there is none. */
  #next: number[] = [];

  /** Without patterns, every line matches. */
  constructor(patterns: readonly Pattern[]) {
    this.#patterns = patterns;
  }

  /** The index of the next line that matches, from the line that begins at `start`; -1: there is none. */
  lineFrom(block: Buffer, start: number): number {
    if (this.#patterns.length === 0) return start;
    if (block !== this.#block) {
      this.#block = block;
      this.#next = this.#patterns.map(() => start - 1);
    }
    let nearest = block.length;
    for (const [index, pattern] of this.#patterns.entries()) {
      let at = this.#next[index] ?? start;
      if (at < start) {
        at = pattern.indexIn(block, start);
        if (at === -1) at = block.length;
        this.#next[index] = at;
      }
      nearest = Math.min(nearest, at);
    }
    return nearest === block.length ? -1 : block.lastIndexOf(NEWLINE, nearest) + 1;
  }
}
