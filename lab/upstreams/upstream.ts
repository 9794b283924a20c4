import { createServer, type Server, Socket } from 'node:net';
import { setTimeout as delay, setImmediate as turn } from 'node:timers/promises';
import { createServer as createTlsServer } from 'node:tls';
import type { KeyPair } from '../../src/simulator/certificates.ts';
import { type LoopbackServer, listenOnLoopback } from '../../test/support/loopback-server.ts';
import { type ReadRequest, readRequests, valuesOf } from '../wire/request-reading.ts';
import type { Answer } from './answers.ts';
import { type ConnectionPast, pastWith } from './exchange.ts';

/** The pause of a slow upstream, in milliseconds. */
const SLOW_MS = 5;

export interface UpstreamListener {
  /** Returns the answer to a request. `past`: undefined for the first request of a connection. */
  answerTo(request: ReadRequest, isAuthenticated: boolean, past: ConnectionPast | undefined): Answer;
  /** A request came while the answer before it was still being sent: the gateway takes the rest for surplus. */
  onOverlap(target: string): void;
  /** The gateway sent something that no upstream should get. */
  onFault(what: string): void;
}

/** An upstream that sends each answer byte for byte as it is told; with a key over TLS. */
export function startScriptedUpstream(
  listener: UpstreamListener,
  key: KeyPair | undefined,
): Promise<LoopbackServer> {
  // A socket of TLS cannot be reset; the one below it can.
  const wires = new Map<number | undefined, Socket>();
  const serve = (socket: Socket, wire: Socket): void => {
    void new UpstreamConnection(socket, wire, listener).serve();
  };
  const server: Server =
    key === undefined
      ? createServer({ noDelay: true }, (socket) => serve(socket, socket))
      : createTlsServer(key, (socket) => serve(socket, wires.get(socket.remotePort) ?? socket));
  server.on('connection', (wire: unknown) => {
    if (!(wire instanceof Socket)) return;
    const { remotePort } = wire;
    wires.set(remotePort, wire);
    wire.once('close', () => wires.delete(remotePort));
  });
  return listenOnLoopback(server);
}

class UpstreamConnection {
  readonly #socket: Socket;
  readonly #wire: Socket;
  readonly #listener: UpstreamListener;
  #text = '';
  #isSending = false;
  #news: (() => void) | undefined;

  constructor(socket: Socket, wire: Socket, listener: UpstreamListener) {
    this.#socket = socket;
    this.#wire = wire;
    this.#listener = listener;
    socket.setEncoding('latin1');
    socket.on('error', () => socket.destroy());
    socket.on('close', () => this.#news?.());
    socket.on('data', (chunk: string) => {
      this.#text += chunk;
      if (this.#isSending) this.#tellOverlap();
      this.#news?.();
    });
  }

  async serve(): Promise<void> {
    let past: ConnectionPast | undefined;
    for (;;) {
      const request = await this.#request();
      if (request === undefined) return;
      const isAuthenticated = valuesOf(request, 'authorization').length > 0;
      const answer = this.#listener.answerTo(request, isAuthenticated, past);
      this.#isSending = true;
      await this.#send(answer);
      this.#isSending = false;
      past = pastWith(past, request.method, answer);
      if (answer.ending === 'silence') return;
      if (answer.ending === 'end') this.#socket.end();
      if (answer.ending === 'reset') this.#wire.resetAndDestroy();
    }
  }

  /** Told at once: the gateway may have answered its client before the rest is sent. */
  #tellOverlap(): void {
    const target = /^[A-Z]+ (\S+) /.exec(this.#text)?.[1];
    if (target !== undefined) this.#listener.onOverlap(target);
  }

  /** The next request; undefined: there is none. */
  async #request(): Promise<ReadRequest | undefined> {
    for (;;) {
      const { requests, rest } = readRequests(this.#text);
      const [request] = requests;
      if (request !== undefined) {
        this.#text = this.#text.slice(request.end);
        if (requests.length > 1)
          this.#listener.onFault(`the upstream got a request before its response to ${request.target}`);
        return request;
      }
      if (rest === 'malformed')
        this.#listener.onFault(
          `the upstream got what is no request: ${JSON.stringify(this.#text.slice(0, 1_000))}`,
        );
      if (this.#socket.destroyed || rest === 'malformed') return undefined;
      await new Promise<void>((resolve) => {
        this.#news = resolve;
      });
    }
  }

  async #send({ bytes, cuts, pace }: Answer): Promise<void> {
    let from = 0;
    for (const to of [...cuts, bytes.length]) {
      if (this.#socket.destroyed) return;
      if (to > from) this.#socket.write(bytes.slice(from, to), 'latin1');
      from = to;
      if (to === bytes.length) return;
      if (pace === 'turns') await turn();
      if (pace === 'slow') await delay(SLOW_MS);
    }
  }
}
