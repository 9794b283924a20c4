import { hash } from 'node:crypto';
import { DIGEST_BYTES, LANES, pairHashModule, roundConstants } from './level-hash-module.ts';

/** Most nodes of a level. */
export const MAX_LEVEL = 1024;
const NODE = 1;
const FIRST_NODE = 1024;
const PAIR_BYTES = 2 * DIGEST_BYTES;
const MAX_BYTES = (1 + MAX_LEVEL) * DIGEST_BYTES;

/** Hashes groups of four pairs: `from` and `to` are addresses in the memory. */
type HashGroups = (groups: number, from: number, to: number) => void;

interface WebAssemblyMemory {
  readonly buffer: ArrayBuffer;
}

/** What is used of WebAssembly, whose types come with those of a browser only. */
interface WebAssemblyApi {
  readonly Memory: new (pages: { readonly initial: number; readonly maximum: number }) => WebAssemblyMemory;
  readonly Module: new (bytes: Uint8Array) => object;
  readonly Instance: new (
    module: object,
    imports: { readonly env: { readonly memory: WebAssemblyMemory } },
  ) => { readonly exports: { readonly hashGroups: HashGroups } };
  readonly CompileError: new () => Error;
}

/**
 * The inner nodes of a tree, one level after another. For 65 bytes, `hash` of node:crypto spends most of its time on the
 * call; WebAssembly hashes four nodes side by side in a third of it. Only the writer of a log uses this: whoever checks
 * a log hashes with node:crypto alone.
 */
export class LevelHash {
  /** The nodes of a level, 32 bytes each, from place 1 on; place 0 is for the node before them. */
  readonly #nodes: Buffer;
  readonly #single = Buffer.alloc(1 + PAIR_BYTES, NODE);
  /** Undefined: this machine does not have what it takes. */
  readonly #hashGroups: HashGroups | undefined;

  constructor() {
    // One page has room for the constants, a level, and what the last lanes write behind it.
    const api = webAssembly();
    const memory = api && new api.Memory({ initial: 1, maximum: 1 });
    this.#nodes = memory ? Buffer.from(memory.buffer, FIRST_NODE) : Buffer.alloc(MAX_BYTES);
    this.#hashGroups = memory && this.#checked(compiled(api, memory));
  }

  /** Puts a node, as 32 characters, at a place of the level. */
  put(place: number, digest: string): void {
    this.#nodes.write(digest, place * DIGEST_BYTES, 'latin1');
  }

  /** The node at a place of the level. */
  at(place: number): string {
    return this.#nodes.toString('latin1', place * DIGEST_BYTES, (place + 1) * DIGEST_BYTES);
  }

  /** Replaces pairs of nodes, which begin at place 0 or 1, by their parents from place 1 on. */
  hashPairs(pairs: number, from: number): void {
    if (pairs > 1 && this.#hashGroups !== undefined) {
      const start = FIRST_NODE + from * DIGEST_BYTES;
      this.#hashGroups(Math.ceil(pairs / LANES), start, FIRST_NODE + DIGEST_BYTES);
      return;
    }
    for (let pair = 0; pair < pairs; pair += 1) this.put(1 + pair, this.#parentOf(from + 2 * pair));
  }

  #parentOf(place: number): string {
    const start = place * DIGEST_BYTES;
    this.#nodes.copy(this.#single, 1, start, start + PAIR_BYTES);
    return hash('sha256', this.#single, 'latin1');
  }

  /** Undefined: the function does not make the hashes of node:crypto. */
  #checked(hashGroups: HashGroups | undefined): HashGroups | undefined {
    for (let at = 0; at < LANES * PAIR_BYTES; at += 1) this.#nodes[at] = at * at;
    const expected = Array.from({ length: LANES }, (_, pair) => this.#parentOf(2 * pair));
    hashGroups?.(1, FIRST_NODE, FIRST_NODE);
    return expected.every((digest, place) => this.at(place) === digest) ? hashGroups : undefined;
  }
}

/** Undefined with `node --jitless`. */
function webAssembly(): WebAssemblyApi | undefined {
  return (globalThis as { readonly WebAssembly?: WebAssemblyApi }).WebAssembly;
}

/** Undefined: the processor has no vectors. */
function compiled(api: WebAssemblyApi, memory: WebAssemblyMemory): HashGroups | undefined {
  Buffer.from(memory.buffer).set(roundConstants());
  try {
    return new api.Instance(new api.Module(pairHashModule()), { env: { memory } }).exports.hashGroups;
  } catch (error) {
    if (!(error instanceof api.CompileError)) throw error;
    return undefined;
  }
}
