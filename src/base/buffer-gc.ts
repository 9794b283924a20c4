import { getHeapStatistics } from 'node:v8';

/** Body bytes between two collections. */
const COLLECT_EVERY = 16 * 1024 * 1024;
/** Size from which the bytes of a body count more: no copy of it is kept, so a collection frees most of them. */
const LARGE_BODY = 1024 * 1024;
/** Collecting so much more often for small bodies would promote those that are under way. */
const LARGE_WEIGHT = 4;
/**
 * Heap, in bytes, below which what is left after a start is soon used again, and to collect it is an eighth of a start.
 */
const SMALL_HEAP = 64 * 1024 * 1024;

/**
 * Limits the memory of used body buffers. A body passes in buffers of up to 64 KiB, each outside V8's heap
 * behind a tiny object. V8 counts the objects, so about 80 MiB of unused buffers accumulate before it
 * collects; this class counts the bytes.
 */
export class BufferGc {
  readonly #collect: () => void;
  #bytes = 0;

  /** @param collect runs V8's minor garbage collection; needs --expose-gc, without which memory use is higher */
  constructor(collect = (): void => void globalThis.gc?.({ type: 'minor' })) {
    this.#collect = collect;
  }

  /** Counts body bytes that have passed. `size`: bytes of the same body so far; left out: not a body. */
  add(bytes: number, size = 0): void {
    this.#bytes += size > LARGE_BODY ? bytes * LARGE_WEIGHT : bytes;
    if (this.#bytes < COLLECT_EVERY) return;
    this.#bytes = 0;
    this.#collect();
  }
}

/**
 * Collects what reading a large configuration has left, twice the size of what is kept of it, and gives the memory back:
 * V8 would let as much again accumulate first. It stops the event loop, for some 0.3 s with thousands of deployments, so
 * it is for a process that does not serve yet, or for a thread of its own. Needs --expose-gc, without which memory use
 * is higher.
 */
export function collectAll(): void {
  if (getHeapStatistics().used_heap_size < SMALL_HEAP) return;
  globalThis.gc?.({ type: 'major', flavor: 'last-resort' });
}
