import { type ClientState, PerClient } from '../base/per-client.ts';
import { tooManyRequests, waitTooLong } from '../transport/overload-errors.ts';

/** Requests that a client may have here while no other has any, for each connection: one on it, 16 that wait. */
const ALONE = 17;
/** A client may have so many times the room that is left. */
const SHARE = 4;

/** Requests of one client that are on a connection or wait for one. */
export class ClientLoad implements ClientState {
  requests = 0;

  get isUnused(): boolean {
    return this.requests === 0;
  }
}

/** The queue that a request would wait in. */
export interface AdmissionQueue {
  /** The most exchanges at a time that are to be expected. */
  readonly limit: number;
  /** The expected wait of a request of this client for a connection, in milliseconds. */
  expectedWait(client: string): number;
}

/**
 * Admits requests to the queue of an upstream, whose length it bounds. A client may have `SHARE` times the room that all
 * clients together have left (a dynamic threshold, after Choudhury and Hahne): the more clients there are, the less each
 * may have, and one that takes all it can leaves room for others.
 */
export class Admission {
  readonly #longestWait: number;
  readonly #clients = new PerClient(() => new ClientLoad());
  #requests = 0;

  /** `longestWait`: the longest expected wait for a connection, in milliseconds. */
  constructor(longestWait: number) {
    this.#longestWait = longestWait;
  }

  /**
   * Counts a request of this client until `leave` gets what this returns.
   * @throws GatewayError `overloaded`
   */
  enter(client: string, queue: AdmissionQueue): ClientLoad {
    const load = this.check(client, queue);
    load.requests += 1;
    this.#requests += 1;
    return load;
  }

  /** @throws GatewayError `overloaded` if a request of this client would not be admitted now */
  check(client: string, queue: AdmissionQueue): ClientLoad {
    const load = this.#clients.of(client);
    const expectedWait = queue.expectedWait(client);
    // A client alone gets n < SHARE × (limit − n), that is n < limit × SHARE / (SHARE + 1), which is ALONE × limit.
    const limit = (ALONE * queue.limit * (SHARE + 1)) / SHARE;
    if (load.requests >= SHARE * (limit - this.#requests)) {
      throw tooManyRequests(load.requests, expectedWait);
    }
    if (expectedWait > this.#longestWait) throw waitTooLong(expectedWait, this.#longestWait);
    return load;
  }

  leave(load: ClientLoad): void {
    load.requests -= 1;
    this.#requests -= 1;
  }
}
