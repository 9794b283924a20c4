import { setTimeout as delay } from 'node:timers/promises';
import { Client, type Dispatcher, errors } from 'undici';

/** A request and the response that it must get. */
export interface Question {
  /** `http://127.0.0.1:PORT` */
  readonly origin: string;
  readonly path: string;
  /** Bytes of the response's body. */
  readonly length: number;
  /** Names and values in turn. */
  readonly headers: readonly string[];
}

export interface Arrivals {
  /** Milliseconds of each request. */
  readonly latencies: readonly number[];
  /** Requests that were left out because this process was late. */
  readonly disturbed: number;
}

interface Arrival {
  /** On the clock of `performance.now()`. */
  readonly at: number;
  /** How often this process had been late by then. */
  readonly delays: number;
}

/** How often the arrivals that are due are sent, in milliseconds. */
const TICK_MS = 1;
/** From one tick to the next, in milliseconds: beyond, something kept this process from its work. */
const LATE_MS = 3;

/**
 * Connections to one contender, one request at a time on each. Every response is checked: status 200, and a body as
 * long as it has to be; anything else rejects what is under way. A request whose connection was closed before any
 * response is sent once more, as browsers do: a server may close a connection that it kept (RFC 9112 §9.3.1).
 */
export class LoadConnections {
  readonly #connections: readonly Connection[];

  private constructor(connections: readonly Connection[]) {
    this.#connections = connections;
  }

  /**
   * Opens the connections and sends one request on each, so that neither accepting them nor the contender's own
   * connections are part of what is measured.
   */
  static async open(question: Question, count: number): Promise<LoadConnections> {
    const connections = Array.from({ length: count }, () => new Connection(question));
    try {
      await Promise.all(connections.map((connection) => connection.exchange()));
    } catch (error) {
      await Promise.all(connections.map((connection) => connection.close()));
      throw error;
    }
    return new LoadConnections(connections);
  }

  /** Each connection sends its next request as soon as it has a response; resolves to the number of responses. */
  async saturate(milliseconds: number): Promise<number> {
    const end = performance.now() + milliseconds;
    const send = async (connection: Connection): Promise<number> => {
      let count = 0;
      do {
        await connection.exchange();
        count += 1;
      } while (performance.now() < end);
      return count;
    };
    const counts = await Promise.all(this.#connections.map(send));
    return counts.reduce((sum, count) => sum + count, 0);
  }

  /**
   * Sends requests at random moments (exponential gaps), whether or not earlier ones were answered. A request that
   * finds every connection taken waits for one, and that counts. One that was under way while this process itself was
   * late is left out: its time says nothing of the contender.
   */
  async arrive(perSecond: number, milliseconds: number, random: () => number): Promise<Arrivals> {
    const free = [...this.#connections];
    const waiting: Arrival[] = [];
    const latencies: number[] = [];
    let [lastTick, delays, disturbed, underWay] = [performance.now(), 0, 0, 0];
    let failure: unknown;
    const send = async (connection: Connection, arrival: Arrival): Promise<void> => {
      await connection.exchange();
      const now = performance.now();
      underWay -= 1;
      if (arrival.delays !== delays || now - lastTick > LATE_MS) disturbed += 1;
      else latencies.push(now - arrival.at);
      const next = waiting.shift();
      if (next === undefined) free.push(connection);
      else await send(connection, next);
    };
    const accept = (arrival: Arrival): void => {
      underWay += 1;
      const connection = free.pop();
      if (connection === undefined) waiting.push(arrival);
      else
        send(connection, arrival).catch((error) => {
          failure ??= error;
        });
    };
    let due = performance.now();
    const end = due + milliseconds;
    while ((due < end || underWay > 0) && failure === undefined) {
      await delay(TICK_MS);
      const now = performance.now();
      if (now - lastTick > LATE_MS) delays += 1;
      lastTick = now;
      for (; due <= Math.min(now, end); due += (-Math.log(1 - random()) * 1000) / perSecond) {
        accept({ at: now, delays });
      }
    }
    if (failure !== undefined) throw failure;
    return { latencies, disturbed };
  }

  /** How many requests were sent once more. */
  get repeated(): number {
    return this.#connections.reduce((sum, connection) => sum + connection.repeated, 0);
  }

  async close(): Promise<void> {
    await Promise.all(this.#connections.map((connection) => connection.close()));
  }
}

/** One connection; the handler of its requests is itself, so that sending costs little. */
class Connection implements Dispatcher.DispatchHandler {
  readonly #client: Client;
  readonly #question: Question;
  readonly #request: Dispatcher.DispatchOptions;
  #received = 0;
  #status = 0;
  #attempts = 0;
  /** How many requests were sent once more. */
  repeated = 0;
  #resolve: () => void = () => undefined;
  #reject: (error: Error) => void = () => undefined;

  constructor(question: Question) {
    this.#question = question;
    this.#request = { path: question.path, method: 'GET', headers: [...question.headers] };
    this.#client = new Client(question.origin, { pipelining: 1 });
  }

  exchange(): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
      this.#attempts = 0;
      this.#send();
    });
  }

  #send(): void {
    this.#attempts += 1;
    this.#received = 0;
    this.#status = 0;
    this.#client.dispatch(this.#request, this);
  }

  close(): Promise<void> {
    return this.#client.destroy();
  }

  /** undici requires it. */
  onRequestStart(): void {}

  onResponseStart(_: Dispatcher.DispatchController, status: number): void {
    this.#status = status;
  }

  onResponseData(_: Dispatcher.DispatchController, chunk: Buffer): void {
    this.#received += chunk.length;
  }

  onResponseEnd(): void {
    const { length, origin, path } = this.#question;
    if (this.#status === 200 && this.#received === length) {
      this.#resolve();
    } else {
      this.#reject(
        new Error(
          `${origin}${path} answered ${this.#status} with ${this.#received} bytes, not 200 with ${length}.`,
        ),
      );
    }
  }

  onResponseError(_: Dispatcher.DispatchController, error: Error): void {
    const closed = error instanceof errors.SocketError && this.#status === 0;
    if (closed && this.#attempts === 1) {
      this.repeated += 1;
      this.#send();
    } else {
      this.#reject(error);
    }
  }
}
