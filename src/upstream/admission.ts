import { type ClientState, PerClient } from '../base/per-client.ts';
import { tooManyRequests, waitTooLong } from '../transport/errors.ts';

/** Requests that a client may have here for each connection: one on it, 16 that wait. */
const MAX_PER_CONNECTION = 17;

/** Requests of one client that are on a connection or wait for one. */
export class ClientLoad implements ClientState {
  requests = 0;

  get isUnused(): boolean {
    return this.requests === 0;
  }
}

/** The queue that a request would wait in. */
export interface AdmissionQueue {
  /** The most connections. */
  readonly limit: number;
  /** The expected wait of a request of this client for a connection, in milliseconds. */
  expectedWait(client: string): number;
}

/**
 * Admits requests to the queue of an upstream. The bound is per client, so that one client cannot fill the queue: since
 * clients take turns in it, those behind the requests of another do not wait for them.
 */
export class Admission {
  readonly #longestWait: number;
  readonly #clients = new PerClient(() => new ClientLoad());

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
    return load;
  }

  /** @throws GatewayError `overloaded` if a request of this client would not be admitted now */
  check(client: string, queue: AdmissionQueue): ClientLoad {
    const load = this.#clients.of(client);
    const expectedWait = queue.expectedWait(client);
    if (load.requests >= MAX_PER_CONNECTION * queue.limit) throw tooManyRequests(load.requests, expectedWait);
    if (expectedWait > this.#longestWait) throw waitTooLong(expectedWait, this.#longestWait);
    return load;
  }

  leave(load: ClientLoad): void {
    load.requests -= 1;
  }
}
