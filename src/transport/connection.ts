import type { Socket } from 'node:net';
import type { Clock } from '../base/clock.ts';
import { asGatewayError, GatewayError } from '../base/errors.ts';
import type { ResponseSource, UpstreamResponse } from '../handshake/response.ts';
import { type Connect, closeSocket } from './connector.ts';
import { connectionEnded } from './errors.ts';
import type { UpstreamExchange } from './exchange.ts';
import type { Holder } from './fair-queue.ts';
import { isLastRequest, type OwnLines, StreamedRequest, writeRequest } from './request-writer.ts';
import { ResponseReader } from './response-reader.ts';

/** Seconds for which an upstream is taken to keep an idle connection if it does not say. */
const KEEP_ALIVE_SECONDS = 6;
/** A connection is closed so much earlier than the upstream would close it: a request must not cross its end. */
const IDLE_MARGIN = 2_000;
/**
 * How much later the end of an idle connection may come, in milliseconds: some servers close behind a 401 without saying
 * so, and a request may cross the end.
 */
const SILENT_END = 1_000;
/** The longest that a connection is used, in milliseconds: later ones find the new address if DNS has changed. */
const LONGEST_USE = 300_000;

export interface ConnectionSettings {
  readonly ownLines: OwnLines;
  readonly connect: Connect;
  /** Ticks from the last byte of the request to the head of the response. */
  readonly responseTicks: number;
  /** Ticks between two pieces of a body. */
  readonly idleTicks: number;
  readonly clock: Clock;
}

/** Some upstreams close a connection behind a 401 without saying so, some of them only where a body came. */
export type Behind401 = 'kept' | 'kept-for-body' | 'closed';

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
  /** The most requests on connections at a time. */
  readonly limit: number;
}

/** The pool of a connection. */
export interface ConnectionOwner {
  /** It can carry an exchange. `now`: in milliseconds. `isReused`: it was idle before the last one. */
  onFree(connection: Connection, now: number, isReused: boolean): void;
  /** The connection will carry no exchange any more; once. */
  onClosed(connection: Connection): void;
}

/** One connection to the upstream, from connecting to closing. It carries one exchange at a time. */
export class Connection implements ResponseSource {
  readonly #settings: ConnectionSettings;
  readonly #owner: ConnectionOwner;
  /** For the pool: when it was taken for an exchange; undefined: it is free. */
  takenAt: number | undefined;
  /** For the pool: the client whose exchange it was taken for; undefined: it is free. */
  client: Holder | undefined;
  /** Ticks in which its exchange waited for the client to send or to read. */
  clientTicks = 0;
  /** Only the connection reads with it. */
  readonly reader = new ResponseReader(this);
  /** True if it has carried an exchange. Only the connection changes it. */
  wasUsed = false;
  /** Undefined: connecting. */
  #socket: Socket | undefined;
  #exchange: UpstreamExchange | undefined;
  #isClosed = false;
  #isPaused = false;
  #onDrain: (() => void) | undefined;
  #ticksLeft = 0;
  #idleUntil = 0;
  #useUntil = 0;
  /** When it began to be made, in milliseconds. */
  #openedAt = 0;
  /** When its last exchange was put on it, in milliseconds. */
  #begunAt = 0;
  #isReferenced = true;
  /** True if its last request had a body. */
  #hadBody = false;
  // Only the connection changes these.
  /** Its last response, if that was a 401. */
  challenge: UpstreamResponse | undefined;
  /** When its last response ended, in milliseconds. */
  freeSince = 0;
  /** True if another response came after a 401. */
  survives401 = false;
  /** Whether it was kept behind a 401, if that was its last response but one; otherwise undefined. */
  behind401: Behind401 | undefined;
  /** True if its last response was one to HEAD, behind which only the answer to its challenge may follow. */
  isForAnswer = false;
  /** True if bytes came behind that response: the server sends a body. */
  headHadBody = false;

  constructor(settings: ConnectionSettings, owner: ConnectionOwner) {
    this.#settings = settings;
    this.#owner = owner;
  }

  /** True if it is connected. */
  get isOpen(): boolean {
    return this.#socket !== undefined && !this.#isClosed;
  }

  /** True if an exchange is on it, or waits for it to connect. */
  get isBusy(): boolean {
    return this.#exchange !== undefined;
  }

  /** True if it has been idle long enough that the upstream may be closing it. */
  isStale(now: number): boolean {
    return now >= this.#idleUntil;
  }

  /** True if its last response was a 401 of just now: it may be answered here, or the upstream may be closing it. */
  isChallenged(now: number): boolean {
    return this.challenge !== undefined && now - this.freeSince < SILENT_END;
  }

  /** When its exchange began, if it was idle before that, and no byte of a response has come; undefined: it is not so. */
  get silentSince(): number | undefined {
    const { isReused, progress, isSendingBody } = this.#exchange ?? {};
    const isSilent = isReused === true && progress === 'sent' && isSendingBody === false;
    return isSilent ? this.#begunAt : undefined;
  }

  /** Connects, for this exchange first. */
  open(exchange: UpstreamExchange, now: number): void {
    this.#openedAt = now;
    this.#exchange = exchange;
    exchange.connection = this;
    this.#settings.connect().then(
      (socket) => this.#connected(socket),
      (error) => this.#lose(error),
    );
  }

  /** Sends the request of an exchange. Called when the connection is open and not busy. */
  begin(exchange: UpstreamExchange): void {
    this.#exchange = exchange;
    this.wasUsed = true;
    exchange.isReused = this.#idleUntil > 0;
    this.#begunAt = this.#settings.clock.now();
    this.clientTicks = 0;
    exchange.connection = this;
    const socket = this.#socket;
    if (socket === undefined) return;
    if (!this.#isReferenced) socket.ref();
    this.#isReferenced = true;
    const { message } = exchange;
    if (message.body !== null && !Buffer.isBuffer(message.body)) {
      void this.#stream(exchange, socket, message.body);
      return;
    }
    try {
      this.reader.begin(message.method, exchange);
      exchange.progress = 'sent';
      writeRequest(socket, message, message.body, this.#settings.ownLines);
      this.#restartTimeout();
    } catch (error) {
      this.close(asGatewayError(error));
    }
  }

  /** Closes the connection. The exchange on it, if there is one, fails with this error. */
  close(error?: GatewayError): void {
    if (error !== undefined) this.#exchange?.onError(error);
    this.#end();
  }

  /** Cancels the request of the exchange on it. */
  cancel(error: GatewayError): void {
    this.#exchange?.message.request.cancellation.cancel(error);
  }

  /** The exchange is given up: closes the connection unless it is still being made. */
  abandon(): void {
    this.#exchange?.release();
    this.#exchange = undefined;
    if (this.#socket !== undefined) this.#end();
  }

  pause(): void {
    this.#isPaused = true;
    this.#socket?.pause();
  }

  resume(): void {
    if (!this.#isPaused) return;
    this.#isPaused = false;
    this.#restartTimeout();
    this.#socket?.resume();
  }

  /** Called by the pool in equal intervals: counts towards the timeouts. A process that stands still has no ticks. */
  tick(now: number): void {
    if (this.#socket === undefined) return;
    const exchange = this.#exchange;
    if (exchange === undefined) {
      if (this.isStale(now)) this.close();
      else this.#unreference(this.#socket);
      return;
    }
    // A slow client, which does not read or does not send, is not the fault of the upstream.
    const awaitsBody = exchange.isSendingBody && !this.reader.isInBody && this.#onDrain === undefined;
    if (this.#isPaused || awaitsBody) {
      this.clientTicks += 1;
      return;
    }
    this.#ticksLeft -= 1;
    if (this.#ticksLeft < 0) this.close(this.reader.isInBody ? bodyTooSlow() : responseTooSlow());
  }

  #unreference(socket: Socket): void {
    if (this.#isReferenced) socket.unref();
    this.#isReferenced = false;
  }

  #connected(socket: Socket): void {
    if (this.#isClosed) {
      closeSocket(socket);
      return;
    }
    this.#socket = socket;
    const now = this.#settings.clock.now();
    this.#useUntil = now + LONGEST_USE;
    const facts = this.#exchange?.message.request.facts;
    if (facts !== undefined) facts.connectMs += now - this.#openedAt;
    // An error comes before the end or close that it causes.
    socket.on('error', (error) => this.#lose(error));
    socket.on('end', () => this.#ended());
    socket.on('close', () => this.#lose(connectionEnded()));
    socket.on('drain', () => this.#onDrain?.());
    socket.on('data', this.#receive);
    if (this.#exchange === undefined) this.#free(undefined);
    else this.begin(this.#exchange);
  }

  async #stream(exchange: UpstreamExchange, socket: Socket, body: AsyncIterable<Buffer>): Promise<void> {
    exchange.isSendingBody = true;
    try {
      const onSent = (): void => this.#onDrain?.();
      const streamed = new StreamedRequest(socket, exchange.message, this.#settings.ownLines, onSent);
      let isBegun = false;
      const begin = (): void => {
        // Bytes of the upstream before this moment are not a response to this request.
        if (!isBegun) this.reader.begin(exchange.message.method, exchange);
        isBegun = true;
        if (exchange.progress === 'unsent') exchange.progress = 'sent';
        this.#restartTimeout();
      };
      for await (const piece of body) {
        if (this.#exchange !== exchange) return;
        if (piece.length === 0) continue;
        begin();
        if (!streamed.write(piece)) await this.#drained();
        if (this.#exchange !== exchange) return;
      }
      if (this.#exchange !== exchange) return;
      begin();
      streamed.end();
      exchange.isSendingBody = false;
    } catch (error) {
      // Its client left in the body, which the upstream may have refused by the head.
      if (this.#exchange === exchange && !exchange.isLeft) this.close(asGatewayError(error));
    }
  }

  /** Resolves when the socket has room again, or is closed. */
  async #drained(): Promise<void> {
    await new Promise<void>((resolve) => {
      this.#onDrain = resolve;
    });
    this.#onDrain = undefined;
    this.#restartTimeout();
  }

  readonly #receive = (bytes: Buffer): void => {
    const reader = this.reader;
    if (reader.isIdle) {
      // A response that comes before its request would be taken for somebody else's: response smuggling.
      this.headHadBody = this.isForAnswer;
      this.#lose(connectionEnded());
      return;
    }
    if (this.#exchange !== undefined) this.#exchange.progress = 'responding';
    const { progress } = reader;
    try {
      reader.read(bytes);
    } catch (error) {
      this.headHadBody = this.isForAnswer;
      if (reader.isForeign && this.#exchange?.isReused === true)
        this.#exchange.onForeign(asGatewayError(error));
      else this.#exchange?.onError(asGatewayError(error));
      this.#end();
      return;
    }
    if (reader.isIdle) this.#finished();
    else if (reader.progress !== progress) this.#restartTimeout();
  };

  #ended(): void {
    try {
      if (!this.reader.end()) this.#lose(connectionEnded());
      else this.#finished();
    } catch (error) {
      this.close(asGatewayError(error));
    }
  }

  /** The response has been read whole, or the exchange was abandoned. */
  #finished(): void {
    if (this.#isClosed) return;
    const exchange = this.#exchange;
    const isReusable =
      exchange !== undefined &&
      this.reader.isPersistent &&
      // The upstream would take the rest of the body for the next request.
      !exchange.isSendingBody &&
      !isLastRequest(exchange.message) &&
      (exchange.message.method !== 'HEAD' || exchange.response?.status === 401);
    this.#exchange = undefined;
    exchange?.release();
    if (isReusable) this.#free(exchange);
    else this.#end();
  }

  /** `exchange`: that has ended; undefined: there was none. */
  #free(exchange: UpstreamExchange | undefined): void {
    const now = this.#settings.clock.now();
    const { response, message, isReused } = exchange ?? {};
    this.survives401 ||= this.challenge !== undefined;
    this.behind401 = this.challenge && (this.#hadBody ? 'kept-for-body' : 'kept');
    this.challenge = response?.status === 401 ? response : undefined;
    this.#hadBody = message !== undefined && message.body !== null;
    this.freeSince = now;
    this.isForAnswer = message?.method === 'HEAD';
    const { keepAliveSeconds: seconds = KEEP_ALIVE_SECONDS } = this.reader;
    // The answer to a challenge goes out at once, also where the upstream closes idle connections soon.
    const least = this.challenge === undefined ? 0 : Math.min(seconds * 1000, SILENT_END) / 2;
    const idleTime = Math.max(seconds * 1000 - IDLE_MARGIN, least);
    this.#idleUntil = Math.min(now + (this.isForAnswer ? SILENT_END : idleTime), this.#useUntil);
    if (this.#isPaused) this.resume();
    // Also of one that is not kept: the pool learns from it.
    this.#owner.onFree(this, now, isReused === true);
    if (idleTime <= 0 || now >= this.#useUntil) this.#end();
  }

  #restartTimeout(): void {
    const { responseTicks, idleTicks } = this.#settings;
    this.#ticksLeft = this.reader.isInBody ? idleTicks : responseTicks;
  }

  /** The connection broke, or was not made. */
  #lose(error: unknown): void {
    const exchange = this.#exchange;
    // The upstream has worked on the request since, and broke off.
    if (exchange?.progress === 'sent' && this.#settings.clock.now() - this.#begunAt >= SILENT_END)
      exchange.isReused = false;
    if (exchange?.progress === 'sent' && this.isChallenged(this.#settings.clock.now()))
      this.behind401 = 'closed';
    exchange?.onConnectionError(error);
    this.#end();
  }

  #end(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#exchange = undefined;
    this.reader.stop();
    this.#onDrain?.();
    if (this.#socket !== undefined) closeSocket(this.#socket);
    this.#owner.onClosed(this);
  }
}

function responseTooSlow(): GatewayError {
  return new GatewayError('upstream-timeout', 'The upstream took too long to respond (timeouts.response).');
}

function bodyTooSlow(): GatewayError {
  return new GatewayError(
    'upstream-timeout',
    'The upstream stopped in the middle of its response (timeouts.idle).',
    undefined,
    { proxyError: 'connection_read_timeout' },
  );
}
