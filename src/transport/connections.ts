import type { buildConnector } from 'undici';
import type { Clock } from '../base/clock.ts';
import { asGatewayError, type GatewayError } from '../base/errors.ts';
import { LinkedQueue } from '../base/linked-queue.ts';
import type { Credential, CredentialSet } from '../credentials/credentials.ts';
import type { Exchange } from '../handshake/exchange.ts';
import { Connection, type ConnectionSettings } from './connection.ts';
import { connector } from './connector.ts';
import { type Egress, isOnThisHost } from './egress.ts';
import { UpstreamExchange } from './exchange.ts';
import type { TlsSeen, UpstreamTls } from './upstream-tls.ts';

/**
 * One timer counts the timeouts of all connections, in ticks: at most so many milliseconds, and so many for the shortest
 * timeout. A timeout never ends early, and at most two ticks late.
 */
const LONGEST_TICK = 500;
const TICKS_PER_TIMEOUT = 20;

export interface ConnectionOptions {
  /** `https://host:port`. */
  readonly origin: string;
  /** At most so many connections at a time. */
  readonly connections: number;
  /** Milliseconds. */
  readonly timeouts: {
    readonly connect: number;
    /** From the last byte of the request to the head of the response. */
    readonly response: number;
    /** Between two pieces of the body of a response. */
    readonly idle: number;
  };
  readonly tls: UpstreamTls;
  readonly egress: Egress;
}

/** Numbers of connections, and of requests. */
export interface ConnectionStats {
  /** Connections that are open. */
  readonly connected: number;
  /** Open connections that carry no request. */
  readonly free: number;
  /** Requests on a connection. */
  readonly running: number;
  /** Requests that wait for a connection. */
  readonly pending: number;
}

/** Kept-alive connections to one upstream. */
export class Connections {
  readonly #egress: Egress;
  readonly #settings: ConnectionSettings;
  readonly #most: number;
  readonly #tickMs: number;
  readonly #connections = new Set<Connection>();
  /** Open connections that carry no request; the one that was used last is the last. */
  readonly #idle: Connection[] = [];
  /** In the order in which they came. */
  readonly #waiting = new LinkedQueue<UpstreamExchange>();
  #isScheduled = false;
  #ticking: NodeJS.Timeout | undefined;
  #isClosed = false;
  #onSettled: (() => void)[] = [];
  #proxyCredential: Credential | undefined;
  #tlsSeen: TlsSeen | undefined;

  constructor(options: ConnectionOptions, clock: Clock) {
    const { origin, timeouts, tls, egress } = options;
    this.#egress = egress;
    this.#most = options.connections;
    const connect = connector(
      { origin, tls, egress, timeout: timeouts.connect },
      {
        clock,
        proxyCredential: () => this.#proxyCredential,
        onTls: (seen) => {
          this.#tlsSeen = seen;
        },
      },
    );
    this.#tickMs = Math.min(
      LONGEST_TICK,
      Math.ceil(Math.min(timeouts.response, timeouts.idle) / TICKS_PER_TIMEOUT),
    );
    this.#settings = {
      ...targetOf(origin),
      connect,
      responseTicks: Math.ceil(timeouts.response / this.#tickMs),
      idleTicks: Math.ceil(timeouts.idle / this.#tickMs),
      clock,
    };
  }

  /**
   * Sends a request over one of the connections. One connection carries one request at a time: if an upstream refuses
   * or resets, only one client is hit.
   */
  readonly exchange: Exchange = (request, handler) =>
    new Promise((resolve, reject) => {
      const { reason } = request.cancellation;
      if (reason !== undefined || this.#isClosed) {
        reject(reason ?? closed());
        return;
      }
      new UpstreamExchange(request, handler, this.#waiting, resolve, reject);
      this.#schedule();
    });

  get stats(): ConnectionStats {
    let connected = 0;
    let busy = 0;
    let running = 0;
    for (const { isOpen, isBusy } of this.#connections) {
      if (isOpen) connected += 1;
      if (isBusy) busy += 1;
      if (isOpen && isBusy) running += 1;
    }
    return { connected, free: connected - running, running, pending: this.#waiting.size + busy - running };
  }

  /** Observations of the last full TLS handshake; undefined: there was none yet. */
  get tlsSeen(): TlsSeen | undefined {
    return this.#tlsSeen;
  }

  /** True if this host has the address that connections leave from; undefined: none is configured. */
  async hasEgressAddress(): Promise<boolean | undefined> {
    const { localAddress } = this.#egress;
    return localAddress === undefined ? undefined : isOnThisHost(localAddress);
  }

  /** Takes over the versions that the sources of a credential hold now, if it is the proxy's. */
  offer({ name, current }: CredentialSet): void {
    if (name === this.#egress.proxy?.credential) this.#proxyCredential = current;
  }

  /** Resolves when the requests under way are done. The caller sends no new ones. */
  close(): Promise<void> {
    this.#isClosed = true;
    return new Promise((resolve) => {
      this.#onSettled.push(resolve);
      this.#settle();
    });
  }

  /** Closes every connection at once; requests under way fail. */
  destroy(): Promise<void> {
    this.#isClosed = true;
    for (let first = this.#waiting.first; first !== undefined; first = this.#waiting.first) {
      this.#waiting.remove(first);
      first.onError(closed());
    }
    for (const connection of this.#connections) connection.close(closed());
    return this.close();
  }

  /**
   * Requests go out at the end of this turn of the event loop. Bytes, or an end, that have come on an idle connection
   * are read by then, so that they do not pass for the response to a request, and no request goes to a dead connection.
   */
  #schedule(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    setImmediate(this.#assign);
  }

  readonly #assign = (): void => {
    this.#isScheduled = false;
    for (let first = this.#waiting.first; first !== undefined; first = this.#waiting.first) {
      if (!this.#start(first)) break;
    }
    this.#settle();
  };

  /** Puts an exchange on a connection; false: there is none for it now. */
  #start(exchange: UpstreamExchange): boolean {
    const idle = this.#takeIdle(exchange.request.freshConnection === true);
    if (idle !== undefined) {
      idle.begin(exchange);
      return true;
    }
    if (this.#connections.size >= this.#most) return false;
    const connection = new Connection(this.#settings, {
      onFree: (freed) => this.#onFree(freed),
      onClosed: (ended) => this.#onClosed(ended),
    });
    this.#connections.add(connection);
    this.#ticking ??= setInterval(() => this.#tick(), this.#tickMs).unref();
    connection.open(exchange);
    return true;
  }

  /** Takes an idle connection, the one that was used last; `fresh`: one that was never used, and closes a used one. */
  #takeIdle(fresh: boolean): Connection | undefined {
    for (let idle = this.#idle.pop(); idle !== undefined; idle = this.#idle.pop()) {
      const isUnfit = fresh && idle.wasUsed;
      if (!isUnfit && !idle.isStale) return idle;
      idle.close();
      if (isUnfit) return undefined;
    }
    return undefined;
  }

  #onFree(connection: Connection): void {
    this.#idle.push(connection);
    if (this.#waiting.size > 0) this.#schedule();
    else this.#settle();
  }

  #onClosed(connection: Connection): void {
    this.#connections.delete(connection);
    const at = this.#idle.indexOf(connection);
    if (at !== -1) this.#idle.splice(at, 1);
    if (this.#connections.size === 0) {
      clearInterval(this.#ticking);
      this.#ticking = undefined;
    }
    if (this.#waiting.size > 0) this.#schedule();
    else this.#settle();
  }

  #tick(): void {
    for (const connection of this.#connections) connection.tick();
  }

  /** Ends closing when nothing is under way. */
  #settle(): void {
    if (!this.#isClosed || this.#waiting.size > 0) return;
    for (const connection of this.#connections) {
      if (!connection.isBusy) connection.close();
    }
    if (this.#connections.size > 0) return;
    for (const resolve of this.#onSettled.splice(0)) resolve();
  }
}

/** Returns the target for the connector, and the value of the Host field. */
function targetOf(origin: string): { target: buildConnector.Options; host: string } {
  const { host, hostname, protocol, port } = new URL(origin);
  return { target: { host, hostname: hostname.replace(/^\[|\]$/g, ''), protocol, port }, host };
}

function closed(): GatewayError {
  return asGatewayError(new Error('The connections to the upstream are closed.'));
}
