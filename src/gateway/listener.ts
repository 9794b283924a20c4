import { once } from 'node:events';
import {
  createServer,
  type IncomingMessage,
  type Server,
  type ServerOptions,
  type ServerResponse,
} from 'node:http';
import { createServer as createTlsServer, type Server as TlsServer } from 'node:https';
import { type AddressInfo, Server as NetServer, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { SecureContextOptions } from 'node:tls';
import { GatewayError } from '../base/errors.ts';
import { openPort } from '../base/open-port.ts';
import { reportError } from '../base/report-error.ts';
import { ClientConnection } from './client-connection.ts';
import { type ConnectionLimitOptions, ConnectionLimits } from './connection-limits.ts';
import type { Gateway } from './gateway.ts';
import { type ListenTls, trustsLess } from './listen-tls.ts';

/** Longest interval of Node's check for late request heads, in milliseconds. */
const LATE_CHECK_MS = 1_000;
/** Node's code for a head that exceeds `headersTimeout`. */
const LATE = 'ERR_HTTP_REQUEST_TIMEOUT';

export interface ListenerOptions extends ConnectionLimitOptions {
  /** Undefined for plain HTTP. */
  readonly tls: ListenTls | undefined;
  /** Maximum size of request line and headers together, in bytes. */
  readonly headerSize: number;
  /**
   * Time from the connection's start, or the request's first byte, to the end of the head, in milliseconds.
   */
  readonly headersTimeout: number;
  /** Time that a connection may wait for its next request, in milliseconds. */
  readonly keepAliveTimeout: number;
  /** Maximum number of open connections. */
  readonly connections: number;
}

/** The data plane's HTTP/1.1 server. */
export class Listener {
  readonly #server: Server;
  /** The same server; undefined without TLS. */
  readonly #tlsServer: TlsServer | undefined;
  readonly #headerSize: number;
  readonly #gateway: Gateway;
  readonly #connections = new Map<Duplex, ClientConnection>();
  #tls: ListenTls | undefined;

  constructor(gateway: Gateway, options: ListenerOptions) {
    this.#gateway = gateway;
    this.#headerSize = options.headerSize;
    this.#tls = options.tls;
    const settings = serverOptions(options);
    if (options.tls !== undefined) {
      // Unverified certificates are accepted here, because the gateway's response explains the error.
      const clients = { requestCert: options.tls.clientCa !== undefined, rejectUnauthorized: false };
      const handshakeTimeout = options.headersTimeout;
      this.#tlsServer = createTlsServer({
        ...settings,
        ...secureContext(options.tls),
        ...clients,
        handshakeTimeout,
      });
    }
    this.#server = this.#tlsServer ?? createServer(settings);
    this.#server.maxConnections = options.connections;
    this.#server.on('drop', () => options.onRefused('total'));
    const limits = new ConnectionLimits(options);
    this.#server.on('connection', (socket) => limits.admit(socket));
    this.#server.on(options.tls === undefined ? 'connection' : 'secureConnection', (socket: Socket) =>
      this.#open(socket),
    );
    // The head's size limits it already; some versions of Node drop headers above their own maximum.
    this.#server.maxHeadersCount = 0;
    this.#server.on('request', (req, res) => this.#serve(req, res, false));
    this.#server.on('checkContinue', (req, res) => this.#serve(req, res, true));
    // Unknown expectations may be ignored (RFC 9110 §10.1.1).
    this.#server.on('checkExpectation', (req, res) => this.#serve(req, res, false));
    // Emitted at the end of the keep-alive time; without a listener Node closes the connection at once.
    this.#server.on('timeout', (socket) => this.#connections.get(socket)?.expire());
    this.#server.on('connect', (req) =>
      orDestroy(req.socket, () => this.#connections.get(req.socket)?.refuseTunnel(connectUnsupported(), req)),
    );
    this.#server.on('clientError', (error, socket) => orDestroy(socket, () => this.#refuse(error, socket)));
  }

  /** Resolves when the port is open; rejects if it cannot be opened. */
  listen(address: string, port: number): Promise<AddressInfo> {
    return openPort(this.#server, { address, port }, 'listen');
  }

  /**
   * Replaces the certificate for new connections. Open connections keep theirs, but serve no further
   * request if the new settings trust fewer client authorities or refuse older protocol versions.
   */
  renewTls(tls: ListenTls): void {
    if (this.#tlsServer === undefined || this.#tls === undefined) return;
    this.#tlsServer.setSecureContext(secureContext(tls));
    const restricts = trustsLess(this.#tls, tls);
    this.#tls = tls;
    if (restricts) for (const connection of this.#connections.values()) connection.retire();
  }

  /**
   * Accepts no more connections, and one more request on each open one. Resolves when all are closed;
   * destroys those that are left after `graceMs` milliseconds. A connection without a request ends after
   * keepAliveTimeout, as its client expects.
   */
  async drain(graceMs: number): Promise<void> {
    this.#gateway.endConnections();
    // http's own close() would cut off connections on which a request may be on its way.
    await this.#closed(() => NetServer.prototype.close.call(this.#server), graceMs);
    // Stops Node's own timer.
    this.#server.close();
  }

  /**
   * Refuses further requests; resolves when the current ones are done, or destroyed after `graceMs`
   * milliseconds.
   */
  async close(graceMs: number): Promise<void> {
    this.#gateway.refuseRequests();
    await this.#closed(() => this.#server.close(), graceMs);
  }

  async #closed(close: () => unknown, graceMs: number): Promise<void> {
    const closed = once(this.#server, 'close');
    close();
    const timer = setTimeout(() => this.#server.closeAllConnections(), graceMs);
    await closed;
    clearTimeout(timer);
  }

  #open(socket: Socket): void {
    // Node's own listener that feeds the parser. It is replaced, because the parser would otherwise read
    // ahead.
    const [parse] = socket.listeners('data') as ((chunk: Buffer) => void)[];
    if (parse === undefined) {
      socket.destroy();
      return;
    }
    const connection = new ClientConnection(socket, parse, this.#gateway);
    this.#connections.set(socket, connection);
    socket.once('close', () => this.#connections.delete(socket));
    socket.removeListener('data', parse);
    socket.on('data', (chunk: Buffer) => connection.receive(chunk));
  }

  #serve(req: IncomingMessage, res: ServerResponse, expectsContinue: boolean): void {
    this.#connections.get(req.socket)?.begin(req, res, expectsContinue);
  }

  /** Node also calls this for a broken connection. */
  #refuse(error: NodeJS.ErrnoException, socket: Duplex): void {
    const connection = this.#connections.get(socket);
    // Before the end of the TLS handshake no response can be sent.
    if (connection === undefined || !socket.writable || isBroken(error)) socket.destroy();
    else if (error.code === LATE) connection.refuseLate(lateHead());
    else connection.refuse(this.#unreadable(error, connection), error.code === 'HPE_INVALID_EOF_STATE');
  }

  #unreadable({ code }: NodeJS.ErrnoException, { requestLineBytes }: ClientConnection): GatewayError {
    if (code === 'HPE_HEADER_OVERFLOW') {
      // The line is counted outside of the parser, whose error says no more: it is the same however the bytes are split.
      if (requestLineBytes > this.#headerSize) {
        const detail = `The request line alone is larger than ${this.#headerSize} bytes.`;
        return new GatewayError('target-too-long', detail);
      }
      const detail = `The request line and headers are larger than ${this.#headerSize} bytes.`;
      return new GatewayError('headers-too-large', detail);
    }
    return new GatewayError('bad-request', `The request is not valid HTTP/1.1 (${code ?? 'unreadable'}).`);
  }
}

function serverOptions({ headerSize, headersTimeout, keepAliveTimeout }: ListenerOptions): ServerOptions {
  return {
    insecureHTTPParser: false,
    // Node would send a response of its own; checkFraming checks the header.
    requireHostHeader: false,
    maxHeaderSize: headerSize,
    headersTimeout,
    connectionsCheckingInterval: Math.min(headersTimeout, LATE_CHECK_MS),
    // A deployment's timeouts.total covers the body, too.
    requestTimeout: 0,
    keepAliveTimeout,
    noDelay: true,
  };
}

function secureContext({ cert, key, clientCa, minVersion }: ListenTls): SecureContextOptions {
  return { cert, key, minVersion, ...(clientCa !== undefined && { ca: clientCa }) };
}

/** After an unexpected error the connection must not stay open, since nothing would serve it. */
function orDestroy(socket: Duplex, step: () => void): void {
  try {
    step();
  } catch (error) {
    socket.destroy();
    reportError(error);
  }
}

/** True if no response can be sent on the connection. */
function isBroken({ code }: NodeJS.ErrnoException): boolean {
  return code === 'ECONNRESET' || code?.startsWith('ERR_SSL_') === true;
}

function lateHead(): GatewayError {
  return new GatewayError('request-timeout', 'The request line and headers took too long.');
}

function connectUnsupported(): GatewayError {
  return new GatewayError(
    'connect-unsupported',
    'CONNECT is not supported: the gateway must see a request to authenticate it. Request the http:// URL; the gateway uses TLS to the upstream.',
  );
}
