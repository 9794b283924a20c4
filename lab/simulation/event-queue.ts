/** Something that happens at a time. */
export interface Event {
  /** Virtual milliseconds. */
  readonly time: number;
  /** Order among events of one time: the lower first. */
  readonly rank: number;
  /** Order among events of one time and rank. */
  readonly number: number;
}

function isBefore(a: Event, b: Event): boolean {
  if (a.time !== b.time) return a.time < b.time;
  if (a.rank !== b.rank) return a.rank < b.rank;
  return a.number < b.number;
}

/** Events in the order in which they happen: a binary heap. */
export class EventQueue<T extends Event> {
  readonly #heap: T[] = [];

  get size(): number {
    return this.#heap.length;
  }

  get first(): T | undefined {
    return this.#heap[0];
  }

  add(event: T): void {
    const heap = this.#heap;
    let at = heap.push(event) - 1;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      const above = heap[parent] as T;
      if (!isBefore(event, above)) break;
      heap[at] = above;
      at = parent;
    }
    heap[at] = event;
  }

  /** Takes the first event out; undefined: there is none. */
  take(): T | undefined {
    const heap = this.#heap;
    const [first] = heap;
    const last = heap.pop();
    if (first === undefined || last === undefined || heap.length === 0) return first;
    this.#sink(last);
    return first;
  }

  #sink(event: T): void {
    const heap = this.#heap;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= heap.length) break;
      const right = heap[child + 1];
      if (right !== undefined && isBefore(right, heap[child] as T)) child += 1;
      if (!isBefore(heap[child] as T, event)) break;
      heap[at] = heap[child] as T;
      at = child;
    }
    heap[at] = event;
  }
}
