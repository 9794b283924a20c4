import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { type AddressInfo, Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { Cancellation } from '../base/cancellation.ts';
import { GatewayError } from '../base/errors.ts';
import type { Visit } from './client-request.ts';
import type { Gateway } from './gateway.ts';
import { sendRawProblem } from './problem.ts';
import { requestIdOf } from './request-id.ts';

/** The data plane's HTTP/1.1 server. */
export class Listener {
  readonly #server: Server;
  readonly #gateway: Gateway;
  /** The latest request of each connection: a complaint about what follows must not cut into its answer. */
  readonly #latest = new WeakMap<Duplex, Visit>();
  /** Connections that are read no further. */
  readonly #refused = new WeakSet<Duplex>();

  constructor(gateway: Gateway) {
    this.#gateway = gateway;
    this.#server = createServer({
      insecureHTTPParser: false,
      // Node would answer in its own words; the gateway checks it.
      requireHostHeader: false,
      // A deployment's timeouts.total covers the body too, however long it may take.
      requestTimeout: 0,
      noDelay: true,
    });
    // The size of the head bounds it already; some versions of Node drop what is above their own limit.
    this.#server.maxHeadersCount = 0;
    this.#server.on('request', (req, res) => this.#serve(req, res, false));
    this.#server.on('checkContinue', (req, res) => this.#serve(req, res, true));
    // An expectation that nobody knows may be ignored (RFC 9110 §10.1.1).
    this.#server.on('checkExpectation', (req, res) => this.#serve(req, res, false));
    this.#server.on('connect', (req, socket) => this.#refuseTunnel(req, socket));
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
    if (this.#refused.has(socket)) return;
    const refuseRest = (): void => void this.#refused.add(socket);
    const visit = { req, res, expectsContinue, cancellation: new Cancellation(), refuseRest };
    this.#latest.set(socket, visit);
    void this.#gateway.handle(visit);
  }

  #refuseTunnel(req: IncomingMessage, socket: Duplex): void {
    if (this.#latest.get(socket)?.res.closed === false) socket.destroy();
    else {
      const requestId = requestIdOf(req.headers['x-request-id']);
      this.#answerRaw(socket, connectUnsupported(), requestId, 'CONNECT');
    }
  }

  /** Node calls this for a broken connection too, and again for each piece that comes after the fault. */
  #refuse(error: NodeJS.ErrnoException, socket: Duplex): void {
    const latest = this.#latest.get(socket);
    if (!socket.writable || error.code === 'ECONNRESET') {
      socket.destroy();
    } else if (!this.#refused.has(socket)) {
      this.#refused.add(socket);
      if (latest === undefined) this.#answerUnreadable(error, socket);
      else this.#refuseAfter(latest, error, socket);
    }
  }

  #refuseAfter({ req, res, cancellation }: Visit, error: NodeJS.ErrnoException, socket: Duplex): void {
    if (req.complete) {
      if (res.closed) this.#answerUnreadable(error, socket);
      else res.once('close', () => this.#answerUnreadable(error, socket));
    } else if (res.closed || error.code === 'HPE_INVALID_EOF_STATE') {
      socket.destroy();
    } else {
      cancellation.cancel(unreadable(error.code));
    }
  }

  #answerUnreadable(error: NodeJS.ErrnoException, socket: Duplex): void {
    if (socket.writable) this.#answerRaw(socket, unreadable(error.code), randomUUID(), '');
  }

  #answerRaw(socket: Duplex, error: GatewayError, requestId: string, method: string): void {
    const address = socket instanceof Socket ? (socket.remoteAddress ?? '') : '';
    this.#gateway.countRefusal(error, { requestId, method, address });
    sendRawProblem(socket, error, requestId);
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
