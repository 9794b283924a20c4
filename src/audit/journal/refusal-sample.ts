import { senderNetwork } from '../../base/network.ts';

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
  readonly sender: Sender;
  count: number;
}

/** A client with all its addresses; of those that nobody knows, one network. */
interface Sender {
  addresses: number;
  recorded: number;
}

/**
 * Chooses which refusals are recorded, so that a flood of them does not fill the disk. A sender gets half of what others
 * leave, so that its flood hides no other's refusals.
 */
export class RefusalSample {
  readonly #seconds = new Map<string, Second>();
  readonly #senders = new Map<string, Sender>();
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
    const second = this.#seconds.get(key) ?? this.#begin(key, client, address);
    if (second === undefined) {
      this.#rest += 1;
      return false;
    }
    const { sender } = second;
    second.count += 1;
    if (second.count <= PER_CLIENT && sender.recorded < ALTOGETHER - this.#total) {
      this.#total += 1;
      sender.recorded += 1;
      return true;
    }
    this.#rest += 1;
    return false;
  }

  /** Begins to count a client at an address; undefined: too many are counted. */
  #begin(key: string, client: string, address: string): Second | undefined {
    const name = client === '' ? ` ${senderNetwork(address)}` : client;
    const sender = this.#senders.get(name) ?? { addresses: 0, recorded: 0 };
    if (sender.addresses >= MOST_CLIENTS - this.#seconds.size) return undefined;
    const second = { client, address, sender, count: 0 };
    sender.addresses += 1;
    this.#senders.set(name, sender);
    this.#seconds.set(key, second);
    return second;
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
    this.#senders.clear();
    this.#total = 0;
    this.#rest = 0;
  }
}
