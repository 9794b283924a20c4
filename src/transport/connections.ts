import type { Clock } from '../base/clock.ts';
import { GatewayError } from '../base/errors.ts';
import type { Credential, CredentialSet } from '../credentials/credentials.ts';
import type { Exchange, Message } from '../handshake/exchange.ts';
import type { Lost, UpstreamResponse } from '../handshake/response.ts';
import type { HistogramSeries } from '../metrics/series.ts';
import {
  Connection,
  type ConnectionOwner,
  type ConnectionSettings,
  type ConnectionStats,
} from './connection.ts';
import { closeSocket, connector } from './connector.ts';
import type { Egress } from './egress.ts';
import { tooSlowForItsShare, upstreamError, waitedTooLong } from './errors.ts';
import { type ExchangeObserver, UpstreamExchange } from './exchange.ts';
import { FairQueue, type Holder } from './fair-queue.ts';
import { IdleConnections } from './idle-connections.ts';
import { lengthRequired, ownLines } from './request-writer.ts';
import type { TlsSeen, UpstreamTls } from './upstream-tls.ts';

/**
 * One timer counts the timeouts of all connections, in ticks: the most milliseconds of a tick, and the number of them
 * for the shortest timeout. A timeout never ends early, and at most two ticks late.
 */
const LONGEST_TICK = 500;
const TICKS_PER_TIMEOUT = 20;
/** How long another client waits, and a connection has waited for its slow client, before that one loses it (ms). */
const PATIENCE = 1_000;
/** A client leaves an eighth of the connections to others, if some had one in the last ten minutes. */
const LEFT_TO_OTHERS = { oneOf: 8, forMs: 600_000 };
/** How many exchanges the average of `#meanHold` covers, for each connection, at least, and at most. */
const AVERAGED = { perConnection: 2, least: 4, most: 64 };

export interface ConnectionOptions {
  /** `https://host:port`. */
  readonly origin: string;
  /** Most connections at a time. */
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

export interface ConnectionListeners {
  /** Observes the result of each exchange. */
  readonly observer?: ExchangeObserver;
  /** Observes the seconds of exchanges that had to wait for a connection. */
  readonly queueWait?: HistogramSeries;
}

/** Kept-alive connections to one upstream. */
export class Connections implements ConnectionOwner {
  /** The most connections, and the most exchanges at a time. */
  readonly limit: number;
  /** Connections that a client may hold while others wait for one. */
  readonly #share: number;
  /** Connections that one client leaves to others. */
  readonly #reserve: number;
  /** The client that got a connection last, and when; the gateway itself is nobody's rival. */
  #lastClient = '';
  #lastAt = Number.NEGATIVE_INFINITY;
  /** When another client got one last. */
  #otherAt = Number.NEGATIVE_INFINITY;
  readonly #observer: ExchangeObserver;
  readonly #egress: Egress;
  readonly #settings: ConnectionSettings;
  readonly #tickMs: number;
  readonly #connections = new Set<Connection>();
  readonly #idle: IdleConnections;
  readonly #waiting = new FairQueue<UpstreamExchange>();
  /** Those that answer a challenge, added in this turn of the event loop. */
  readonly #answers: UpstreamExchange[] = [];
  readonly #longestWait: number;
  readonly #queueWait: HistogramSeries | undefined;
  /** How long exchanges hold a connection, in milliseconds: an exponential moving average. */
  #meanHold = 0;
  readonly #holdWeight: number;
  #isScheduled = false;
  #ticking: NodeJS.Timeout | undefined;
  #isClosed = false;
  #proxyCredential: Credential | undefined;
  #tlsSeen: TlsSeen | undefined;
  #localAddress: string | undefined;
  /** True if the upstream answered with HTTP/1.0 last. */
  #isHttp10 = false;

  constructor(
    options: ConnectionOptions,
    clock: Clock,
    { observer = NO_OBSERVER, queueWait }: ConnectionListeners = {},
  ) {
    this.#observer = observer;
    const { origin, timeouts, tls, egress } = options;
    this.#egress = egress;
    this.limit = options.connections;
    this.#share = Math.ceil(this.limit / 2);
    this.#reserve = Math.floor(this.limit / LEFT_TO_OTHERS.oneOf);
    this.#longestWait = timeouts.response;
    this.#idle = new IdleConnections(timeouts.response);
    this.#queueWait = queueWait;
    const { perConnection, least, most } = AVERAGED;
    this.#holdWeight = 1 / Math.min(Math.max(perConnection * this.limit, least), most);
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
      ownLines: ownLines(new URL(origin).host),
      connect: async () => {
        const socket = await connect();
        this.#localAddress = socket.localAddress;
        return socket;
      },
      responseTicks: Math.ceil(timeouts.response / this.#tickMs),
      idleTicks: Math.ceil(timeouts.idle / this.#tickMs),
      clock,
    };
  }

  /**
   * Sends a request over one of the connections. One connection carries one request at a time: if an upstream refuses
   * or resets, only one client is hit. Rejects with `overloaded` if none is free within `timeouts.response`.
   */
  readonly exchange = (message: Message, observer = this.#observer): Promise<UpstreamResponse | Lost> => {
    const { reason } = message.request.cancellation;
    if (reason !== undefined || this.#isClosed) return Promise.reject(reason ?? closed());
    const exchange = new UpstreamExchange(message, this.#waiting, observer);
    if (message.follows !== undefined) this.#answers.push(exchange);
    if (this.#waiting.size > this.#available - this.#reserve) this.#waits(exchange);
    this.#schedule();
    return exchange.result;
  };

  /** Does the same for a health check, whose result the observer does not see. */
  readonly check: Exchange = (message) => this.exchange(message, NO_OBSERVER);

  /**
   * Makes a connection, with its checks, and closes it. It does not count as one of the connections.
   * @throws GatewayError
   */
  async connect(): Promise<void> {
    try {
      closeSocket(await this.#settings.connect());
    } catch (error) {
      throw upstreamError(error);
    }
  }

  /**
   * The expected wait for a connection of a request of this client that would come now, in milliseconds. 0: nothing
   * waits ahead of it, however long exchanges took before, so that an upstream that has recovered gets requests.
   */
  expectedWait(client: string): number {
    if (this.#waiting.size === 0) return 0;
    const ahead = this.#waiting.aheadOf(client) - this.#availableTo(client, this.#settings.clock.now());
    return ahead <= 0 ? 0 : (ahead * this.#meanHold) / this.limit;
  }

  /** Exchanges that could get a connection now. */
  get #available(): number {
    return this.limit - this.#connections.size + this.#idle.size;
  }

  /**
   * Exchanges of this client that could get one. A client whose upstream is slow for what it asks would otherwise hold
   * all of them, and others would wait until one of its responses comes.
   */
  #availableTo(client: string, now: number): number {
    const othersAt = client === this.#lastClient ? this.#otherAt : this.#lastAt;
    if (othersAt < now - LEFT_TO_OTHERS.forMs) return this.#available;
    return Math.min(this.#available, this.limit - this.#reserve - this.#waiting.heldBy(client));
  }

  /** Notes since when an exchange waits, if it finds no connection that it can have. */
  #waits(exchange: UpstreamExchange): void {
    const now = this.#settings.clock.now();
    if (this.#waiting.size > this.#availableTo(exchange.client, now)) exchange.waitingSince = now;
  }

  get stats(): ConnectionStats {
    let connected = 0;
    let busy = 0;
    let running = 0;
    for (const { isOpen, isBusy } of this.#connections) {
      if (isOpen) connected += 1;
      if (isBusy) busy += 1;
      if (isOpen && isBusy) running += 1;
    }
    const pending = this.#waiting.size + busy - running;
    return { connected, free: connected - running, running, pending, limit: this.limit };
  }

  /** Observations of the last full TLS handshake; undefined: there was none yet. */
  get tlsSeen(): TlsSeen | undefined {
    return this.#tlsSeen;
  }

  /** The address of this host that the last connection was made from; undefined: there was none yet. */
  get localAddress(): string | undefined {
    return this.#localAddress;
  }

  /** Takes over the versions that the sources of a credential hold now, if it is the proxy's. */
  offer({ name, current }: CredentialSet): void {
    if (name === this.#egress.proxy?.credential) this.#proxyCredential = current;
  }

  /** Removes and returns the exchanges of these clients that wait for a connection; the caller ends them. */
  removeWaiting(isRemoved: (client: string) => boolean): readonly UpstreamExchange[] {
    return this.#waiting.removeOldest(({ client }) => isRemoved(client));
  }

  /** Closes every connection at once; requests under way fail, and so do later ones. */
  close(): void {
    this.#isClosed = true;
    for (let next = this.#waiting.take(); next !== undefined; next = this.#waiting.take())
      next.onError(closed());
    for (const connection of this.#connections) connection.close(closed());
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
    const now = this.#settings.clock.now();
    // Others would take their connections.
    for (let answer = this.#answers.shift(); answer !== undefined; answer = this.#answers.shift()) {
      if (this.#waiting.has(answer) && this.#idle.hasOwn(answer.message, now)) this.#start(answer, now);
    }
    for (;;) {
      const next = this.#waiting.nextWithin(this.#share);
      if (next === undefined || !this.#start(next, now)) break;
    }
  };

  /** Puts the next exchange on a connection, or refuses it; false: there is no connection for it now. */
  #start(next: UpstreamExchange, now: number): boolean {
    const { message } = next;
    const refusal =
      message.refusal?.() ?? (message.body === null ? undefined : lengthRequired(message, this.#isHttp10));
    if (refusal !== undefined) {
      this.#waiting.takeThis(next);
      this.#observeWait(next, now);
      next.onError(refusal);
      return true;
    }
    if (this.#available <= this.#reserve && this.#availableTo(next.client, now) <= 0) return false;
    if (next.client !== '') this.#noteClient(next.client, now);
    const { facts, noTotalTimeout } = message.request;
    const idle = this.#idle.take(message, now, this.#connections.size < this.limit);
    const client = this.#waiting.takeThis(next);
    client.held += 1;
    if (next.waitingSince !== undefined) this.#observeWait(next, now);
    if (facts !== undefined) facts.leftAt ??= now;
    const connection = idle ?? this.#connection();
    // A stream of an hour does not show how long other requests have to wait.
    connection.client = client;
    connection.takenAt = noTotalTimeout === true ? undefined : now;
    if (idle === undefined) connection.open(next, now);
    else connection.begin(next);
    return true;
  }

  #noteClient(client: string, now: number): void {
    if (client !== this.#lastClient) {
      this.#otherAt = this.#lastAt;
      this.#lastClient = client;
    }
    this.#lastAt = now;
  }

  #connection(): Connection {
    const connection = new Connection(this.#settings, this);
    this.#connections.add(connection);
    this.#ticking ??= setInterval(() => this.#tick(), this.#tickMs).unref();
    return connection;
  }

  /** For its connections. */
  onFree(connection: Connection, now: number, isReused: boolean): void {
    this.#learnFrom(connection, now);
    this.#idle.add(connection, now, isReused);
    if (this.#waiting.size > 0) this.#schedule();
  }

  /** For its connections. */
  onClosed(connection: Connection): void {
    this.#learnFrom(connection, this.#settings.clock.now());
    this.#connections.delete(connection);
    this.#idle.remove(connection, this.#settings.clock.now());
    if (this.#connections.size === 0) {
      clearInterval(this.#ticking);
      this.#ticking = undefined;
    }
    if (this.#waiting.size > 0) this.#schedule();
  }

  #learnFrom(connection: Connection, now: number): void {
    // An idle connection that ends says nothing that was not known.
    if (connection.client !== undefined) {
      this.#isHttp10 = connection.reader.isHttp10 ?? this.#isHttp10;
      connection.client.held -= 1;
    }
    connection.client = undefined;
    if (connection.takenAt === undefined) return;
    const held = now - connection.takenAt;
    connection.takenAt = undefined;
    this.#meanHold += (held - this.#meanHold) * this.#holdWeight;
  }

  #observeWait({ waitingSince }: UpstreamExchange, now: number): void {
    if (waitingSince !== undefined) this.#queueWait?.observe((now - waitingSince) / 1000);
  }

  #tick(): void {
    const now = this.#settings.clock.now();
    for (const connection of this.#connections) connection.tick(now);
    this.#idle.closeSilent(this.#connections, now);
    if (this.#waiting.size === 0) return;
    this.#endLongWaits(now);
    if (this.#available <= 0) this.#reclaim(now);
  }

  /** Takes a connection from a slow client that holds more than its share, for others that wait. */
  #reclaim(now: number): void {
    const share = this.#share;
    const isDue = ({ waitingSince = now }: UpstreamExchange): boolean => waitingSince <= now - PATIENCE;
    const isOver = (client: Holder): boolean => client.held > share && this.#waiting.someOther(client, isDue);
    slowestOf(this.#connections, isOver, PATIENCE / this.#tickMs)?.cancel(tooSlowForItsShare(share));
  }

  /** Nobody else ends a wait that turns out longer than it was expected to be, but `timeouts.total`. */
  #endLongWaits(now: number): void {
    const since = now - this.#longestWait;
    const over = this.#waiting.removeOldest(({ waitingSince = now }) => waitingSince < since);
    for (const exchange of over) {
      this.#observeWait(exchange, now);
      exchange.onError(waitedTooLong(this.#longestWait, this.expectedWait(exchange.client)));
    }
  }
}

/**
 * The connection whose exchange has waited longest for its client, of the clients for which `isOver` is true; undefined:
 * none has waited for this number of ticks.
 */
function slowestOf(
  connections: Iterable<Connection>,
  isOver: (client: Holder) => boolean,
  minTicks: number,
): Connection | undefined {
  let slowest: Connection | undefined;
  for (const connection of connections) {
    const { client, clientTicks } = connection;
    if (client === undefined || clientTicks < minTicks) continue;
    if (clientTicks > (slowest?.clientTicks ?? 0) && isOver(client)) slowest = connection;
  }
  return slowest;
}

const NO_OBSERVER: ExchangeObserver = { responded() {}, failed() {} };

function closed(): GatewayError {
  return new GatewayError(
    'draining',
    'The connections to this upstream are being closed. Send the request again.',
  );
}
