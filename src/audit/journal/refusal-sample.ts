/** Refusals of one client that are recorded in a second; and of all clients together. */
const PER_CLIENT = 10;
const ALTOGETHER = 200;
/** Clients that are told apart in a second. */
const MOST_CLIENTS = 1000;
const SECOND_MS = 1000;

/** Refusals that were not recorded one by one. */
export interface LeftOut {
  readonly client: string;
  /** Empty: of several. */
  readonly address: string;
  readonly count: number;
}

interface Second {
  readonly client: string;
  readonly address: string;
  count: number;
}

/** Chooses which refusals are recorded, so that a flood of them does not fill the disk. */
export class RefusalSample {
  readonly #seconds = new Map<string, Second>();
  readonly #onLeftOut: (leftOut: LeftOut) => void;
  #total = 0;
  #rest = 0;
  #timer: NodeJS.Timeout | undefined;

  /** `onLeftOut` is told of each client once a second. */
  constructor(onLeftOut: (leftOut: LeftOut) => void) {
    this.#onLeftOut = onLeftOut;
  }

  /** Whether this refusal is one of those that are recorded. */
  admits(client: string, address: string): boolean {
    this.#timer ??= setTimeout(() => this.flush(), SECOND_MS).unref();
    const key = `${client} ${address}`;
    let second = this.#seconds.get(key);
    if (second === undefined) {
      if (this.#seconds.size >= MOST_CLIENTS) {
        this.#rest += 1;
        return false;
      }
      second = { client, address, count: 0 };
      this.#seconds.set(key, second);
    }
    if (second.count < PER_CLIENT && this.#total < ALTOGETHER) {
      this.#total += 1;
      second.count += 1;
      return true;
    }
    second.count += 1;
    this.#rest += 1;
    return false;
  }

  /** Tells what was left out, and begins a new second. */
  flush(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    let rest = this.#rest;
    for (const { client, address, count } of this.#seconds.values()) {
      // Those that came after the limit of all can be anybody's: they are told together below.
      const leftOut = Math.min(count - PER_CLIENT, rest);
      if (leftOut <= 0) continue;
      rest -= leftOut;
      this.#onLeftOut({ client, address, count: leftOut });
    }
    if (rest > 0) this.#onLeftOut({ client: '', address: '', count: rest });
    this.#seconds.clear();
    this.#total = 0;
    this.#rest = 0;
  }
}
