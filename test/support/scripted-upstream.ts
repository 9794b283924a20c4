import { once } from 'node:events';
import { createServer as createHttpServer, type RequestListener } from 'node:http';
import { createServer as createHttpsServer } from 'node:https';
import { createServer, Socket } from 'node:net';
import { setImmediate as turn } from 'node:timers/promises';
import { createServer as createTlsServer } from 'node:tls';
import type { KeyPair } from '../../src/simulator/certificates.ts';
import { listenOnLoopback } from './loopback-server.ts';

export interface ScriptedUpstream extends AsyncDisposable {
  /** `http://127.0.0.1:PORT`, for which a deployment needs `tls.allowPlaintext`; with a key pair `https:`. */
  readonly origin: string;
  close(): Promise<void>;
}

/** An upstream that does exactly what a test says, where the simulator is too well-behaved. */
export async function startUpstream(listener: RequestListener, pair?: KeyPair): Promise<ScriptedUpstream> {
  const server = pair === undefined ? createHttpServer(listener) : createHttpsServer(pair, listener);
  const { port, close } = await listenOnLoopback(server);
  const origin = `${pair === undefined ? 'http' : 'https'}://127.0.0.1:${port}`;
  return { origin, close, [Symbol.asyncDispose]: close };
}

/** An upstream that answers each request's head with exactly these bytes (Latin-1); `end`: and ends the connection. */
export async function startRawUpstream(
  answerTo: (head: string) => string | { readonly text: string; readonly end: true },
): Promise<ScriptedUpstream> {
  const server = createServer((socket) => {
    let received = '';
    socket.on('error', () => socket.destroy());
    socket.on('data', (chunk) => {
      received += chunk.toString('latin1');
      const end = received.indexOf('\r\n\r\n');
      if (end === -1) return;
      const answer = answerTo(received.slice(0, end));
      received = '';
      const text = typeof answer === 'string' ? answer : answer.text;
      socket.write(text, 'latin1');
      if (typeof answer !== 'string' || /^connection: close/im.test(text)) socket.end();
    });
  });
  const { port, close } = await listenOnLoopback(server);
  return { origin: `http://127.0.0.1:${port}`, close, [Symbol.asyncDispose]: close };
}

/** One connection to an upstream that a test writes byte for byte. */
export class UpstreamConnection {
  /** The first is 1. */
  readonly number: number;
  readonly #socket: Socket;
  /** The TCP connection; of TLS the one below it. */
  readonly #wire: Socket;
  #received = '';
  #news: (() => void) | undefined;

  constructor(number: number, socket: Socket, wire: Socket) {
    this.number = number;
    this.#socket = socket;
    this.#wire = wire;
    socket.setNoDelay(true);
    const tell = (): void => this.#news?.();
    socket.on('error', () => socket.destroy());
    socket.on('close', tell);
    socket.on('data', (chunk: Buffer) => {
      this.#received += chunk.toString('latin1');
      tell();
    });
  }

  /** The head of the next request; undefined: the connection closed before one came whole. */
  request(): Promise<string | undefined> {
    return this.#upTo('\r\n\r\n');
  }

  async #upTo(text: string): Promise<string | undefined> {
    for (;;) {
      const end = this.#received.indexOf(text);
      if (end !== -1) {
        const found = this.#received.slice(0, end);
        this.#received = this.#received.slice(end + text.length);
        return found;
      }
      if (this.#socket.destroyed) return undefined;
      await new Promise<void>((resolve) => {
        this.#news = resolve;
      });
    }
  }

  /** The next bytes up to this text and with it; undefined: the connection closed before it came. */
  async through(text: string): Promise<string | undefined> {
    const head = await this.#upTo(text);
    return head === undefined ? undefined : `${head}${text}`;
  }

  /** Latin-1 text; resolves when it has been sent. */
  async write(text: string): Promise<void> {
    await new Promise<void>((resolve) => this.#socket.write(text, 'latin1', () => resolve()));
  }

  /** Each byte in a packet, and with TLS a record, of its own. */
  async trickle(text: string): Promise<void> {
    for (const byte of text) {
      await this.write(byte);
      await turn();
    }
  }

  get isClosed(): boolean {
    return this.#socket.destroyed;
  }

  /** Reads nothing more. */
  pause(): void {
    this.#socket.pause();
  }

  /** Ends the connection; with TLS after a close_notify. */
  end(): void {
    this.#socket.end();
  }

  /** Ends the TCP connection, without a close_notify. */
  cut(): void {
    this.#wire.end();
  }

  /** Resets the TCP connection. */
  reset(): void {
    this.#wire.resetAndDestroy();
  }

  /** Resolves when the other side has closed the connection. */
  async closed(): Promise<void> {
    if (!this.#socket.destroyed) await once(this.#socket, 'close');
  }
}

export interface ScriptedConnections {
  /** `https://127.0.0.1:PORT`, or `http:` without TLS. */
  readonly origin: string;
  /** Connections that were made. */
  readonly count: number;
  /** Rejects with what the script threw. */
  close(): Promise<void>;
}

/** An upstream whose every connection follows the script; with `tls` over TLS. */
export async function startConnections(
  script: (connection: UpstreamConnection) => Promise<void>,
  tls?: KeyPair,
): Promise<ScriptedConnections> {
  const failures: unknown[] = [];
  let count = 0;
  const serve = (socket: Socket, wire: Socket): void => {
    count += 1;
    script(new UpstreamConnection(count, socket, wire)).catch((error) => failures.push(error));
  };
  // TLS takes over the handle of the socket below it, through which it can be ended without a close_notify.
  const wires = new Map<number | undefined, Socket>();
  const server =
    tls === undefined
      ? createServer((socket) => serve(socket, socket))
      : createTlsServer(tls, (socket) => serve(socket, wires.get(socket.remotePort) ?? socket));
  server.on('connection', (wire: unknown) => {
    if (tls !== undefined && wire instanceof Socket) wires.set(wire.remotePort, wire);
  });
  const { port, close } = await listenOnLoopback(server);
  return {
    origin: `${tls === undefined ? 'http' : 'https'}://127.0.0.1:${port}`,
    get count() {
      return count;
    },
    close: async () => {
      await close();
      if (failures.length > 0) throw failures[0];
    },
  };
}
