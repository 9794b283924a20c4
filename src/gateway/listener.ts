import { constants } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type Server, type Socket } from 'node:net';
import {
  createServer as createTlsServer,
  type SecureContextOptions,
  type Server as TlsServer,
} from 'node:tls';
import { isDeepStrictEqual } from 'node:util';
import { addressOf, announceAddress } from '../base/client-address.ts';
import { certificatesIn } from '../base/guarded-file.ts';
import { type Network, parseAddress } from '../base/network.ts';
import { addressName, type OpenAddress, openPort, type PortOptions, socketPath } from '../base/open-port.ts';
import { ClientConnection, type ConnectionOptions } from './client-connection.ts';
import type { ConnectionLimits } from './connection-limits.ts';
import type { Gateway } from './gateway.ts';
import { type ProxyHeaderError, receiveProxyHeader } from './proxy-protocol.ts';

/** How long connections may take to end their TLS handshake once the port is closed, in milliseconds. */
const HANDSHAKE_MS = 1_000;
/** Longest interval of the check for late request heads and idle connections, in milliseconds. */
const TICK_MS = 1_000;

const SOCKETS = { allowHalfOpen: true, noDelay: true };

/** TLS settings of the data plane; texts are PEM. */
export interface ListenTls {
  readonly cert: string;
  readonly key: string;
  /** Authorities of client certificates; undefined: clients are not asked for a certificate. */
  readonly clientCa: string | undefined;
  /** Lists of revoked client certificates; undefined: none is checked. */
  readonly crl: readonly string[] | undefined;
  /** When the first of these lists expires, in seconds of Unix time; 0: never. */
  readonly crlExpires: number;
  readonly minVersion: 'TLSv1.2' | 'TLSv1.3';
  /** Beginning and end of the validity of the certificate, in seconds of Unix time. */
  readonly validFrom: number;
  readonly expires: number;
}

export interface ListenerOptions extends ConnectionOptions {
  readonly place: PortOptions;
  /** Its path in the configuration, such as `listen[1]`, for errors. */
  readonly path: string;
  /** Shared with the other listeners. */
  readonly limits: ConnectionLimits;
  readonly onRefused: (reason: 'total' | 'address', listener: string) => void;
  /** Networks from which each connection has to begin with a header of the PROXY protocol. */
  readonly proxyProtocol: readonly Network[];
  /** Called when a connection of a proxy is closed for its header. */
  readonly onProxyHeader: (error: ProxyHeaderError, proxy: string, listener: string) => void;
  /** Undefined for plain HTTP. */
  readonly tls: ListenTls | undefined;
}

/** An HTTP/1.1 server of the data plane, on an address of its own. */
export class Listener {
  readonly #server: Server;
  /** Does the handshakes of new connections: the same server until its authorities change; undefined without TLS. */
  #tlsServer: TlsServer | undefined;
  /** Begins the TLS handshake of a socket; undefined without TLS. */
  #secure: ((socket: Socket) => void) | undefined;
  readonly #gateway: Gateway;
  readonly #options: ListenerOptions;
  /** All sockets, those in a TLS handshake among them. */
  readonly #sockets = new Set<Socket>();
  /** Sockets before the end of their PROXY header or TLS handshake by `endsOf`: TLS replaces a socket by its own. */
  readonly #handshakes = new Map<string, Socket>();
  readonly #connections = new Set<ClientConnection>();
  #name = '';
  #tls: ListenTls | undefined;
  /** Renewals after which handshakes that had begun end their connections. */
  #restrictions = 0;
  #ticks: NodeJS.Timeout | undefined;

  constructor(gateway: Gateway, options: ListenerOptions) {
    this.#gateway = gateway;
    this.#options = options;
    this.#tls = options.tls;
    if (options.tls !== undefined) this.#tlsServer = this.#beginTls(options.tls);
    this.#server = this.#tlsServer ?? createServer(SOCKETS);
    this.#server.on('connection', (socket: Socket) => {
      // Without a response, which would cost too much.
      if (!options.limits.admit(socket)) {
        socket.destroy();
        options.onRefused('total', this.#name);
        return;
      }
      this.#sockets.add(socket);
      socket.once('close', () => this.#sockets.delete(socket));
      if (this.#isProxy(socket)) void this.#acceptProxied(socket);
      else this.#accept(socket);
    });
  }

  /** The address that it listens on, such as `127.0.0.1:8080`; empty before. */
  get name(): string {
    return this.#name;
  }

  /** Number of open connections, those in a handshake among them. */
  get connections(): number {
    return this.#sockets.size;
  }

  /** The settings of new connections; undefined without TLS. */
  get tls(): ListenTls | undefined {
    return this.#tls;
  }

  /** Resolves when the port or socket is open; rejects if it cannot be opened. */
  async listen(): Promise<OpenAddress> {
    const { place, path } = this.#options;
    const opened = await openPort(this.#server, place, path);
    this.#name = addressName(opened);
    const { headersTimeout, keepAliveTimeout } = this.#options;
    const interval = Math.min(headersTimeout, keepAliveTimeout, TICK_MS);
    this.#ticks = setInterval(() => this.#tick(), interval).unref();
    return opened;
  }

  /**
   * Replaces the certificate for new connections. Open connections keep theirs, but serve no further
   * request if the new settings trust fewer client authorities, refuse older protocol versions, or have another list
   * of revoked certificates. A handshake that is under way then ends its connection: it uses the former settings. With
   * another authority, connections whose certificate was not accepted serve one more request: TLS does not verify again.
   * So do those whose handshake is under way.
   */
  renewTls(tls: ListenTls): void {
    if (this.#tlsServer === undefined || this.#tls === undefined) return;
    const before = this.#tls;
    const restricts = trustsLess(before, tls);
    this.#tls = tls;
    if (!restricts && before.clientCa === tls.clientCa) {
      this.#tlsServer.setSecureContext(secureContext(tls));
      return;
    }
    if (restricts) this.#restrictions += 1;
    const tickets = this.#tlsServer.getTicketKeys();
    this.#tlsServer = this.#beginTls(tls);
    this.#tlsServer.setTicketKeys(tickets);
    for (const connection of this.#connections) {
      if (restricts) connection.retire();
      else if (!connection.isAuthorized) connection.retireNext();
    }
  }

  /** Creates the server for handshakes from now on. */
  #beginTls(tls: ListenTls): TlsServer {
    const server = createTlsServer({
      ...SOCKETS,
      ...secureContext(tls),
      ALPNProtocols: ['http/1.1'],
      requestCert: tls.clientCa !== undefined,
      // Unverified certificates are accepted here, because the gateway's response explains the error.
      rejectUnauthorized: false,
      handshakeTimeout: this.#options.headersTimeout,
    });
    // A handshake that takes too long leaves its socket open.
    server.on('tlsClientError', (_error, socket) => socket.destroy());
    const restrictions = this.#restrictions;
    server.on('secureConnection', (socket: Socket) => {
      if (this.#restrictions === restrictions) this.#open(socket, tls.clientCa);
      else socket.destroy();
    });
    this.#secure = takeListener(server);
    return server;
  }

  /**
   * Accepts no more connections, and one more request on each open one. Resolves when all are closed;
   * destroys those that are left after `graceMs` milliseconds. A connection without a request ends after
   * keepAliveTimeout, as its client expects.
   */
  async drain(graceMs: number): Promise<void> {
    this.#gateway.endConnections();
    await this.#closed(graceMs);
  }

  /**
   * Refuses further requests; resolves when the current ones are done, or destroyed after `graceMs`
   * milliseconds.
   */
  async close(graceMs: number): Promise<void> {
    this.#gateway.refuseRequests();
    for (const connection of this.#connections) if (connection.isIdle) connection.destroy();
    await this.#closed(graceMs);
  }

  async #closed(graceMs: number): Promise<void> {
    const closed = once(this.#server, 'close');
    this.#server.close();
    const timer = setTimeout(() => {
      for (const connection of this.#connections) connection.cutOff();
      for (const socket of this.#sockets) socket.destroy();
    }, graceMs);
    // A client that has gone within its handshake would hold the end up until headersTimeout: Node.js reports it then.
    const handshakes = setTimeout(() => {
      for (const socket of this.#handshakes.values()) socket.destroy();
    }, HANDSHAKE_MS);
    await closed;
    clearTimeout(timer);
    clearTimeout(handshakes);
    clearInterval(this.#ticks);
  }

  /** True if the connection has to begin with a header of the PROXY protocol. */
  #isProxy({ remoteAddress }: Socket): boolean {
    const { proxyProtocol } = this.#options;
    if (proxyProtocol.length === 0 || remoteAddress === undefined) return false;
    const address = parseAddress(remoteAddress);
    return address !== undefined && proxyProtocol.some((network) => network.contains(address));
  }

  /** Accepts a connection when its header has come. Never rejects. */
  async #acceptProxied(socket: Socket): Promise<void> {
    const { headersTimeout, onProxyHeader } = this.#options;
    const proxy = addressOf(socket);
    this.#beginHandshake(socket);
    const header = await receiveProxyHeader(socket, headersTimeout);
    this.#handshakes.delete(endsOf(socket));
    if (typeof header === 'object') {
      if (header.address !== undefined) announceAddress(socket, header.address);
      this.#accept(socket);
      return;
    }
    socket.destroy();
    if (header !== 'none') onProxyHeader(header, proxy, this.#name);
  }

  #accept(socket: Socket): void {
    if (!this.#options.limits.admitAddress(socket)) {
      socket.destroy();
      this.#options.onRefused('address', this.#name);
      return;
    }
    if (this.#secure === undefined) this.#open(socket);
    else {
      this.#beginHandshake(socket);
      this.#secure(socket);
    }
  }

  #beginHandshake(socket: Socket): void {
    const ends = endsOf(socket);
    // Clients of a UNIX socket have no port to distinguish them: their handshakes end by headersTimeout.
    if (socket.remotePort === undefined) return;
    this.#handshakes.set(ends, socket);
    socket.once('close', () => {
      if (this.#handshakes.get(ends) === socket) this.#handshakes.delete(ends);
    });
  }

  /** The socket of TLS has the address that was announced for the one below it. */
  #endHandshake(socket: Socket): void {
    const ends = endsOf(socket);
    const raw = this.#handshakes.get(ends);
    if (raw !== undefined && this.#isProxy(raw)) announceAddress(socket, addressOf(raw));
    this.#handshakes.delete(ends);
  }

  /** `clientCa`: what TLS verified its certificate with. */
  #open(socket: Socket, clientCa?: string): void {
    if (this.#tlsServer !== undefined) this.#endHandshake(socket);
    if (socket.destroyed) return;
    // A client that has reset its connection has no address any more, and would pass for one of a UNIX socket.
    if (addressOf(socket) === '' && socketPath(this.#options.place.address) === undefined) {
      socket.destroy();
      return;
    }
    const connection = new ClientConnection(socket, this.#gateway, this.#options);
    this.#connections.add(connection);
    if (clientCa !== this.#tls?.clientCa && !connection.isAuthorized) connection.retireNext();
    // Behind a header of the PROXY protocol, it is paused.
    if (socket.isPaused()) socket.resume();
    socket.once('close', () => this.#connections.delete(connection));
  }

  #tick(): void {
    const now = performance.now();
    for (const connection of this.#connections) connection.tick(now);
  }
}

/**
 * Takes the listener with which a TLS server begins handshakes from it. The first one remains the server that listens, so
 * that workers share the keys of its session tickets.
 */
function takeListener(server: TlsServer): (socket: Socket) => void {
  const listeners = server.listeners('connection');
  server.removeAllListeners('connection');
  return (socket) => {
    for (const listener of listeners) Reflect.apply(listener, server, [socket]);
  };
}

/**
 * Returns both ends of a connection, which no other open one has: from one port, a peer may connect to several addresses
 * of this machine.
 */
function endsOf({ remoteAddress, remotePort, localAddress, localPort }: Socket): string {
  return `${remoteAddress} ${remotePort} ${localAddress} ${localPort}`;
}

function secureContext({ cert, key, clientCa, crl, minVersion }: ListenTls): SecureContextOptions {
  // Node.js allows it, and verifies no certificate that comes with it: a client would be taken for any other.
  const context = { cert, key, minVersion, secureOptions: constants.SSL_OP_NO_RENEGOTIATION };
  // The certificate of a resumed session is not verified again, and a ticket has none of those between it and its
  // authority, whose ends count too.
  return clientCa === undefined
    ? context
    : {
        ...context,
        ca: clientCa,
        ...(crl !== undefined && { crl: [...crl] }),
        secureOptions: context.secureOptions | constants.SSL_OP_NO_TICKET,
      };
}

/**
 * True if `after` may refuse a connection that `before` allows: its version of TLS is too old, its certificate was
 * revoked, or the authority of its client certificate was removed.
 */
function trustsLess(before: ListenTls, after: ListenTls): boolean {
  if (before.minVersion < after.minVersion) return true;
  if (after.crl !== undefined && !isDeepStrictEqual(before.crl, after.crl)) return true;
  const kept = new Set(fingerprintsIn(after.clientCa));
  return fingerprintsIn(before.clientCa).some((fingerprint) => !kept.has(fingerprint));
}

function fingerprintsIn(pem: string | undefined): string[] {
  return (certificatesIn(pem ?? '') ?? []).map(({ fingerprint256 }) => fingerprint256);
}
