import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Duplex } from 'node:stream';
import { GatewayError } from '../base/errors.ts';
import type { Gateway } from './gateway.ts';
import { sendRawProblem } from './problem.ts';

/** The data plane's HTTP/1.1 server. */
export class Listener {
  readonly #server: Server;
  readonly #gateway: Gateway;
  /** Connections with a request under way: a complaint about the next one must not cut into its answer. */
  readonly #busy = new WeakSet<Duplex>();

  constructor(gateway: Gateway) {
    this.#gateway = gateway;
    this.#server = createServer({
      insecureHTTPParser: false,
      requireHostHeader: true,
      // A deployment's timeouts.total covers the body too, however long it may take.
      requestTimeout: 0,
      noDelay: true,
    });
    this.#server.on('request', (req, res) => this.#serve(req, res, false));
    this.#server.on('checkContinue', (req, res) => this.#serve(req, res, true));
    this.#server.on('connect', (_req, socket) => sendRawProblem(socket, connectUnsupported(), randomUUID()));
    this.#server.on('clientError', (error, socket) => this.#refuse(error, socket));
  }

  /** Resolves once the port is open; rejects when it cannot be. */
  async listen(address: string, port: number): Promise<AddressInfo> {
    this.#server.listen(port, address);
    await once(this.#server, 'listening');
    return this.#server.address() as AddressInfo;
  }

  /** Takes no more requests; resolves when those under way are done, or broken off after `graceMs`. */
  async close(graceMs: number): Promise<void> {
    this.#gateway.drain();
    const closed = once(this.#server, 'close');
    this.#server.close();
    const timer = setTimeout(() => this.#server.closeAllConnections(), graceMs);
    await closed;
    clearTimeout(timer);
  }

  #serve(req: IncomingMessage, res: ServerResponse, expectsContinue: boolean): void {
    const { socket } = req;
    this.#busy.add(socket);
    res.once('close', () => this.#busy.delete(socket));
    void this.#gateway.handle(req, res, expectsContinue);
  }

  #refuse(error: NodeJS.ErrnoException, socket: Duplex): void {
    if (!socket.writable || error.code === 'ECONNRESET' || this.#busy.has(socket)) socket.destroy();
    else sendRawProblem(socket, unreadable(error.code), randomUUID());
  }
}

function connectUnsupported(): GatewayError {
  return new GatewayError(
    'connect-unsupported',
    'CONNECT would hide the request from the gateway, which has to authenticate it. Ask for the http:// address instead; the gateway speaks TLS to the upstream.',
  );
}

function unreadable(code: string | undefined): GatewayError {
  if (code === 'HPE_HEADER_OVERFLOW') {
    return new GatewayError('headers-too-large', 'The request line and headers are larger than 16 KiB.');
  }
  if (code === 'ERR_HTTP_REQUEST_TIMEOUT') {
    return new GatewayError('request-timeout', 'The request line and headers took too long.');
  }
  return new GatewayError(
    'bad-request',
    `The request is not HTTP/1.1 as RFC 9112 has it (${code ?? 'unreadable'}).`,
  );
}
