import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { type RawResponse, readRawResponse } from './raw-response.ts';

/** A client that sends exactly the bytes it is given, right or wrong. */
export class RawClient {
  readonly socket: Socket;
  #received = Buffer.alloc(0);
  #ended = false;
  #news: (() => void) | undefined;
  #failure: Error | undefined;

  private constructor(socket: Socket) {
    this.socket = socket;
    const tell = (): void => this.#news?.();
    socket.on('data', (chunk: Buffer) => {
      this.#received = Buffer.concat([this.#received, chunk]);
      tell();
    });
    socket.on('error', (error) => {
      this.#failure = error;
    });
    for (const event of ['end', 'close'] as const) {
      socket.on(event, () => {
        this.#ended = true;
        tell();
      });
    }
  }

  /**
   * Connects, with `ca` (PEM) over TLS to a server that it signed; keeps its own side open after the server has ended
   * its side.
   */
  static async open(port: number, ca?: string): Promise<RawClient> {
    const options = { port, host: '127.0.0.1', allowHalfOpen: true };
    const socket = ca === undefined ? connect(options) : connectTls({ ...options, ca });
    const client = new RawClient(socket);
    await once(socket, ca === undefined ? 'connect' : 'secureConnect');
    return client;
  }

  /** Latin-1 text or bytes. Resolves when they are handed over, or the connection is gone. */
  send(...parts: readonly (string | Buffer)[]): Promise<void> {
    const bytes = Buffer.concat(
      parts.map((part) => (typeof part === 'string' ? Buffer.from(part, 'latin1') : part)),
    );
    return new Promise((resolve) => this.socket.write(bytes, () => resolve()));
  }

  /** The next whole answer, interim ones included. Rejects when the connection ends without one. */
  async answer(method = 'GET'): Promise<RawResponse> {
    for (;;) {
      const found = readRawResponse(this.#received, { method, ended: this.#ended });
      if (found !== undefined) {
        this.#received = this.#received.subarray(found.length);
        return found.answer;
      }
      if (this.#ended) throw this.#failure ?? new Error(`ended early, after ${this.#received.length} bytes`);
      await this.#more();
    }
  }

  /** Resolves when the server has ended its side, to the bytes that no answer has taken. */
  async end(): Promise<Buffer> {
    while (!this.#ended) await this.#more();
    return this.#received;
  }

  /** How many bytes are there that no answer has taken. */
  get pending(): number {
    return this.#received.length;
  }

  close(): void {
    this.socket.destroy();
  }

  #more(): Promise<void> {
    return new Promise((resolve) => {
      this.#news = resolve;
    });
  }
}
