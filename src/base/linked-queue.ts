/** An item of a `LinkedQueue`, which sets both. */
export interface Linked<T> {
  previous: T | undefined;
  next: T | undefined;
}

/**
 * Items in the order in which they came, of which any can be removed at once. Unlike a Set it is fit for items that come
 * and go with each request: outgrown tables of a Set refer to the next one, and so keep all later items from being
 * collected as garbage of one request.
 */
export class LinkedQueue<T extends Linked<T>> {
  /** The oldest item; undefined: there is none. Only the queue changes it, and the size. */
  first: T | undefined;
  size = 0;
  #last: T | undefined;

  /** Adds an item that is in no queue. */
  add(item: T): void {
    item.previous = this.#last;
    if (this.#last === undefined) this.first = item;
    else this.#last.next = item;
    this.#last = item;
    this.size += 1;
  }

  /** Does nothing if the item is not in the queue. */
  remove(item: T): void {
    const { previous, next } = item;
    if (previous === undefined && this.first !== item) return;
    if (previous === undefined) this.first = next;
    else previous.next = next;
    if (next === undefined) this.#last = previous;
    else next.previous = previous;
    // An item that is collected late must not keep others.
    item.previous = undefined;
    item.next = undefined;
    this.size -= 1;
  }
}
