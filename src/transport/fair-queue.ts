import { type ClientState, PerClient } from '../base/per-client.ts';

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

  has(item: T): boolean {
    return item.previous !== undefined || this.first === item;
  }

  /** Does nothing if the item is not in the queue. */
  remove(item: T): void {
    if (!this.has(item)) return;
    const { previous, next } = item;
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

/** An item of a `FairQueue`. */
export interface Queued<T> extends Linked<T> {
  /** Id of its client. */
  readonly client: string;
}

/** A client of a `FairQueue`. */
export interface Holder {
  /** The share of the resource that its items hold; the taker of an item counts it. */
  held: number;
}

/** The items of one client, and its place among the clients that have items. */
class ClientQueue<T extends Queued<T>>
  extends LinkedQueue<T>
  implements ClientState, Linked<ClientQueue<T>>, Holder
{
  previous: ClientQueue<T> | undefined = undefined;
  next: ClientQueue<T> | undefined = undefined;
  held = 0;

  get isUnused(): boolean {
    return this.size === 0 && this.held === 0;
  }
}

/**
 * A queue that is fair between clients: it takes the oldest item of each client in turn (round robin), so that a client
 * waits for at most one item of each other client, however many those have. Everything but `removeOldest` takes
 * constant time, and allocates nothing once a client is known.
 */
export class FairQueue<T extends Queued<T>> {
  readonly #clients = new PerClient(() => new ClientQueue<T>());
  /** Clients that have items, the one whose turn is next first. */
  readonly #turns = new LinkedQueue<ClientQueue<T>>();
  /** Only the queue changes it. */
  size = 0;

  /** The next item of a client that holds less than this; if there is none, the next one. */
  nextWithin(maxHeld: number): T | undefined {
    const { first } = this.#turns;
    let queue = first;
    while (queue !== undefined && queue.held >= maxHeld) queue = queue.next;
    return (queue ?? first)?.first;
  }

  /** True if this is true for the oldest item of another client. */
  someOther(client: Holder, isTrue: (item: T) => boolean): boolean {
    for (let queue = this.#turns.first; queue !== undefined; { next: queue } = queue) {
      if (queue !== client && queue.first !== undefined && isTrue(queue.first)) return true;
    }
    return false;
  }

  /** The most items that can be taken before one that this client would add now. */
  aheadOf(client: string): number {
    const own = this.#clients.find(client)?.size ?? 0;
    return Math.min(this.size, (own + 1) * this.#turns.size);
  }

  /** The number of places that items of this client hold. */
  heldBy(client: string): number {
    return this.#clients.find(client)?.held ?? 0;
  }

  has(item: T): boolean {
    return this.#clients.find(item.client)?.has(item) === true;
  }

  /** Adds an item that is in no queue. */
  add(item: T): void {
    const queue = this.#clients.of(item.client);
    if (queue.size === 0) this.#turns.add(queue);
    queue.add(item);
    this.size += 1;
  }

  /** Removes the next item and returns it; undefined: there is none. The turn goes to the next client. */
  take(): T | undefined {
    const item = this.nextWithin(Number.POSITIVE_INFINITY);
    if (item !== undefined) this.takeThis(item);
    return item;
  }

  /** Removes an item, and returns its client, whose turn is over then. */
  takeThis(item: T): Holder {
    const queue = this.#clients.of(item.client);
    queue.remove(item);
    this.size -= 1;
    this.#turns.remove(queue);
    if (queue.size > 0) this.#turns.add(queue);
    return queue;
  }

  /** Does nothing if the item is not in the queue. */
  remove(item: T): void {
    const queue = this.#clients.find(item.client);
    if (queue === undefined) return;
    const { size } = queue;
    queue.remove(item);
    this.size -= size - queue.size;
    if (size > 0 && queue.size === 0) this.#turns.remove(queue);
  }

  /** Removes and returns the items for which `isOver` is true, up to the first of each client for which it is not. */
  removeOldest(isOver: (item: T) => boolean): T[] {
    const over: T[] = [];
    for (let queue = this.#turns.first; queue !== undefined; ) {
      const { next } = queue;
      for (let { first } = queue; first !== undefined && isOver(first); { first } = queue) {
        this.remove(first);
        over.push(first);
      }
      queue = next;
    }
    return over;
  }
}
