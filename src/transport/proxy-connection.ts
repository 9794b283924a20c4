import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import type { Clock } from '../base/clock.ts';
import { GatewayError } from '../base/errors.ts';
import { expectGatewayError } from '../base/expected-errors.ts';
import { request } from '../base/node-http.ts';
import type { RawHeaders } from '../base/raw-headers.ts';
import type { Lost } from '../handshake/response.ts';
import { type BodyFraming, BodyReader } from '../http1/body-reader.ts';
import { MalformedMessage } from '../http1/fields.ts';
import { proxyError, proxyTooSlow } from './proxy-errors.ts';
import { type Destination, reach } from './reach.ts';
import { framingOf } from './response-reader.ts';

/** Bounds of the body of a 407 that is read to use its connection again: bytes, and milliseconds. Each tunnel waits. */
const MAX_BODY = 64 * 1024;
const BODY_MS = 200;

/** Response of a proxy to a CONNECT. */
export interface ProxyReply {
  readonly kind: 'reply';
  readonly status: number;
  readonly headers: RawHeaders;
  /** Nothing behind the head has been read. */
  readonly socket: Socket;
}

/**
 * Sends one CONNECT with these header fields. After a 407 it goes out on the connection that brought the 407, if the proxy
 * keeps it open: a nonce may be known to one server of a farm only, or on one connection. It is lost if that connection
 * breaks; the next one goes out on a new one.
 */
export type Connect = (headers: RawHeaders) => Promise<ProxyReply | Lost>;

export interface ProxyConnectionOptions {
  readonly proxy: Destination;
  /** `host:port`, the target of CONNECT. */
  readonly authority: string;
  /** When the tunnel has to stand, on the clock. */
  readonly deadline: number;
}

/** The connection to a proxy that becomes one tunnel, or those that are tried in turn. */
export class ProxyConnection {
  readonly #options: ProxyConnectionOptions;
  readonly #clock: Clock;
  #socket: Socket | undefined;
  /** Of the 407 that came last; undefined: no CONNECT can follow it. */
  #body: BodyFraming | undefined;
  /** False: one broke that had been kept. */
  #keeps = true;

  constructor(options: ProxyConnectionOptions, clock: Clock) {
    this.#options = options;
    this.#clock = clock;
  }

  /** @throws GatewayError `upstream-unreachable`, which says that it was the proxy */
  readonly connect: Connect = async (credentials) => {
    const kept = await this.#takeKept();
    if (kept === undefined) {
      this.close();
      try {
        return await this.#send(await reach(this.#options.proxy, this.#left, this.#clock), credentials);
      } catch (error) {
        throw proxyError(error);
      }
    }
    try {
      return await this.#send(kept, credentials);
    } catch (error) {
      if (error instanceof GatewayError) throw error;
      this.#keeps = false;
      // A CONNECT without a response has made no tunnel, so it may be sent again.
      return { kind: 'lost', error: proxyError(error), broke: true, sent: false, reused: true };
    }
  };

  /** Ends what is no tunnel. */
  close(): void {
    this.#socket?.destroy();
  }

  /** Milliseconds. */
  get #left(): number {
    return Math.max(this.#options.deadline - this.#clock.now(), 1);
  }

  async #takeKept(): Promise<Socket | undefined> {
    const [socket, body] = [this.#socket, this.#body];
    this.#body = undefined;
    if (socket === undefined || body === undefined) return undefined;
    return (await readBody(socket, body, Math.min(BODY_MS, this.#left / 2))) ? socket : undefined;
  }

  #send(opened: Socket, credentials: RawHeaders): Promise<ProxyReply> {
    this.#socket = opened;
    return new Promise((resolve, reject) => {
      const { authority } = this.#options;
      // Node.js would ask for the end of the connection.
      const headers = ['host', authority, 'connection', 'keep-alive', ...credentials];
      const createConnection = () => opened;
      const connect = request({ method: 'CONNECT', path: authority, headers, createConnection });
      const timer = setTimeout(() => connect.destroy(proxyTooSlow()), this.#left);
      connect.on('error', (error) => {
        clearTimeout(timer);
        reject(error);
      });
      connect.once('connect', (response, socket: Socket, early: Buffer) => {
        clearTimeout(timer);
        if (early.length > 0) socket.unshift(early);
        const { statusCode: status = 0, rawHeaders } = response;
        if (status === 407 && this.#keeps) this.#body = bodyOf(response);
        resolve({ kind: 'reply', status, headers: rawHeaders, socket });
      });
      connect.end();
    });
  }
}

/** Returns how long the body is of a response after which the connection persists; undefined: it does not. */
function bodyOf({ rawHeaders: headers, httpVersion }: IncomingMessage): BodyFraming | undefined {
  try {
    const { length, codings, isPersistent } = framingOf({ headers, isHttp11: httpVersion === '1.1' });
    if (!isPersistent) return undefined;
    return codings?.toLowerCase() === 'chunked' ? 'chunked' : length;
  } catch (error) {
    expectGatewayError(error);
    return undefined;
  }
}

/**
 * Reads the body of a response to its end. Returns false if that is too far or takes too long, or the connection cannot
 * carry another request: bytes behind the body would be taken for the next response.
 */
async function readBody(socket: Socket, framing: BodyFraming, timeout: number): Promise<boolean> {
  if (framing !== 'chunked' && framing > MAX_BODY) return false;
  const timer = setTimeout(() => socket.destroy(), timeout);
  const reader = new BodyReader(MAX_BODY);
  let hasTrailers = false;
  const receiver = {
    onData(): void {},
    onEnd(trailers: RawHeaders): void {
      hasTrailers = trailers.length > 0;
    },
  };
  if (framing !== 0) reader.begin(framing);
  try {
    let rest: Buffer = Buffer.alloc(0);
    for (let left = MAX_BODY; !reader.isEnded; ) {
      const piece = await nextPiece(socket);
      left -= piece?.length ?? 0;
      if (piece === undefined || left < 0) return false;
      const input = Buffer.concat([rest, piece]);
      rest = input.subarray(reader.read(input, 0, 0, receiver));
    }
    return rest.length === 0 && !hasTrailers && socket.read() === null && isOpen(socket);
  } catch (error) {
    if (error instanceof MalformedMessage) return false;
    throw error;
  } finally {
    clearTimeout(timer);
  }
}

/** Resolves to the next bytes of a connection; undefined: it has ended. */
async function nextPiece(socket: Socket): Promise<Buffer | undefined> {
  for (;;) {
    const piece: Buffer | null = socket.read();
    if (piece !== null) return piece;
    if (!isOpen(socket)) return undefined;
    await change(socket);
  }
}

function isOpen({ readableEnded, writable }: Socket): boolean {
  return !readableEnded && writable;
}

/** Resolves when there is more to read, or the connection has ended. */
function change(socket: Socket): Promise<void> {
  const events = ['readable', 'end', 'close'];
  return new Promise((resolve) => {
    const onChange = (): void => {
      for (const event of events) socket.off(event, onChange);
      resolve();
    };
    for (const event of events) socket.on(event, onChange);
  });
}
