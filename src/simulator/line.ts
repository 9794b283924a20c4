import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

/** The connection under a response, for answers that are none. */
export class Line {
  readonly #response: ServerResponse;
  readonly #raw: Socket | undefined;
  #broken = false;

  /** @param raw the TCP socket; under TLS it is another than the response's own. */
  constructor(response: ServerResponse, raw: Socket | undefined) {
    this.#response = response;
    this.#raw = raw;
  }

  /** Whether the simulator ended the connection, and not the client. */
  get broken(): boolean {
    return this.#broken;
  }

  /** TCP reset. */
  reset(): void {
    this.#broken = true;
    this.#raw?.resetAndDestroy();
  }

  /** Ends the connection once everything written is out. */
  finish(): void {
    this.#broken = true;
    this.#response.socket?.end();
  }

  /** Bytes that are no HTTP, then the end. */
  garble(): void {
    this.#broken = true;
    this.#response.socket?.end(Buffer.from([0x15, 0x03, 0x00, 0x0a, 0x0a, 0xff, 0xfe, 0x0d, 0x0a]));
  }
}
