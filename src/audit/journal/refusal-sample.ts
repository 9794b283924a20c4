/** Refusals that are recorded per second: of one client at one address, and of all clients together. */
const PER_CLIENT = 10;
const ALTOGETHER = 200;
/** Clients that are counted separately in a second. */
const MOST_CLIENTS = 1000;
const SECOND_MS = 1000;

/** A number of refusals that were not recorded one by one. */
export interface LeftOut {
  /** Client and address are empty for refusals of several clients. */
  readonly client: string;
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

  /** `onLeftOut` is called at most once per second for each client. */
  constructor(onLeftOut: (leftOut: LeftOut) => void) {
    this.#onLeftOut = onLeftOut;
  }

  /** True if this refusal is to be recorded. */
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

  /** Reports the refusals that were left out, and starts a new second. */
  flush(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    let rest = this.#rest;
    for (const { client, address, count } of this.#seconds.values()) {
      // Refusals beyond the limit of all clients are reported together below.
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
