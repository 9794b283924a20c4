import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

/** The connection of a response, for faults below HTTP. */
export class FaultyConnection {
  readonly #response: ServerResponse;
  readonly #raw: Socket | undefined;
  #broken = false;

  /** @param raw the TCP socket; with TLS it differs from the response's socket. */
  constructor(response: ServerResponse, raw: Socket | undefined) {
    this.#response = response;
    this.#raw = raw;
  }

  /** True if the simulator ended the connection, not the client. */
  get broken(): boolean {
    return this.#broken;
  }

  /** Sends a TCP reset. */
  reset(): void {
    this.#broken = true;
    this.#raw?.resetAndDestroy();
  }

  /** Ends the connection after all pending bytes are sent. */
  finish(): void {
    this.#broken = true;
    this.#response.socket?.end();
  }

  /** Sends bytes that are not HTTP, then ends the connection. */
  garble(): void {
    this.#broken = true;
    this.#response.socket?.end(Buffer.from([0x15, 0x03, 0x00, 0x0a, 0x0a, 0xff, 0xfe, 0x0d, 0x0a]));
  }
}
