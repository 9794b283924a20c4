import type { lookup } from 'node:dns';
import { isIP, connect as openTcp, type Socket } from 'node:net';
import { connect as openTls, TLSSocket, type ConnectionOptions as TlsConnectOpts } from 'node:tls';
import type { Clock } from '../base/clock.ts';
import { errorCode } from '../base/error-code.ts';
import { GatewayError } from '../base/errors.ts';
import type { Credential } from '../credentials/credentials.ts';
import type { Egress } from './egress.ts';
import { ProxyTunnel } from './proxy-tunnel.ts';
import { type Destination, endpointOf, established, type Opening, reach } from './reach.ts';
import {
  checkServerName,
  MAX_SESSION_MS,
  PinMissing,
  secureContextFor,
  sessionMs,
  showsPin,
  type TlsSeen,
  tlsSeenOn,
  type UpstreamTls,
} from './upstream-tls.ts';

/** Handshakes of one connection: servers with TLS 1.2 ask for a client certificate by another one. */
const MAX_HANDSHAKES = 20;

export interface ConnectorOptions {
  /** `https://host:port`. */
  readonly origin: string;
  /** For the connection itself, and once more for the tunnel through a proxy, in milliseconds. */
  readonly timeout: number;
  readonly tls: UpstreamTls;
  readonly egress: Egress;
}

export interface ConnectorDeps {
  readonly clock: Clock;
  /** The proxy's credential in use now; undefined: none. */
  readonly proxyCredential: () => Credential | undefined;
  /** Called with the observations of each full handshake. */
  readonly onTls: (seen: TlsSeen) => void;
  /** Left out: the system's. */
  readonly lookup?: typeof lookup;
}

/**
 * Makes one connection: from the local address, through the proxy, to an upstream whose identity is checked. Rejects with
 * an error of Node.js, OpenSSL or the proxy, which `upstreamError` explains.
 */
export type Connect = () => Promise<Socket>;

export function connector(options: ConnectorOptions, deps: ConnectorDeps): Connect {
  const { egress, origin, timeout, tls } = options;
  const { localAddress, proxy } = egress;
  const endpoint = endpointOf(origin);
  const { host, port, isTls } = endpoint;
  const destination: Destination = {
    ...endpoint,
    localAddress,
    open: isTls ? tlsOpener(tls, host, deps.clock) : openTcp,
    ...(deps.lookup !== undefined && { lookup: deps.lookup }),
  };
  const identified = async (opening: Promise<Socket>): Promise<Socket> => {
    const socket = await opening;
    return isTls ? checkIdentity(socket as TLSSocket, tls.pins, deps.onTls) : socket;
  };
  if (proxy !== undefined) {
    const tunnel = new ProxyTunnel(
      { proxy, origin, localAddress, timeout },
      { clock: deps.clock, credential: deps.proxyCredential, lookup: deps.lookup },
    );
    return async () => {
      const socket = await tunnel.open();
      if (!isTls) return socket;
      const limits = { tcp: timeout, all: timeout };
      return identified(established(destination.open({ host, port, socket }), true, limits));
    };
  }
  return () => identified(reach(destination, timeout, deps.clock));
}

/** A session, and until when the certificate of its full handshake counts, on the clock. */
interface TlsSession {
  readonly bytes: Buffer;
  readonly until: number;
}

/**
 * Returns a function that begins a TLS connection, with the session of the last one while its certificate counts. A
 * server may end the handshake at a session that it cannot resume, in place of making a full one.
 */
function tlsOpener(tls: UpstreamTls, host: string, clock: Clock): (opts: Opening) => TLSSocket {
  const secure: TlsConnectOpts = {
    ALPNProtocols: ['http/1.1'],
    checkServerIdentity: checkServerName,
    rejectUnauthorized: true,
    secureContext: secureContextFor(tls),
    // RFC 6066 §3: an address is not a server name.
    servername: tls.serverName ?? (isIP(host) === 0 ? host : ''),
  };
  let last: TlsSession | undefined;
  /** No session is offered before, on the clock. */
  let fullUntil = Number.NEGATIVE_INFINITY;
  return (opts) => {
    const now = clock.now();
    const resumed = last !== undefined && now >= fullUntil && now < last.until ? last : undefined;
    const socket = openTls({ ...opts, ...secure, ...(resumed && { session: resumed.bytes }) });
    let handshakes = 0;
    socket.on('secureConnect', () => {
      handshakes += 1;
      // Each costs a millisecond of CPU, and none counts towards a timeout.
      if (handshakes > MAX_HANDSHAKES) socket.destroy(tooManyHandshakes());
    });
    // A session that is resumed does not show the whole chain, and a pin may be of any part of it.
    if (tls.pins.length > 0) return socket;
    const onError = (error: Error): void => {
      if (last === resumed) last = undefined;
      // Sessions of the connections to come would end every second one.
      if (errorCode(error).includes('_ALERT_')) fullUntil = now + MAX_SESSION_MS;
    };
    const watch = () =>
      socket.once('error', onError).once('secureConnect', () => socket.off('error', onError));
    if (resumed !== undefined && opts.socket !== undefined) watch();
    // An address that does not accept connections has not seen the session.
    else if (resumed !== undefined) socket.once('connect', watch);
    let until: number | undefined;
    socket.on('session', (bytes) => {
      until ??= resumed !== undefined && socket.isSessionReused() ? resumed.until : now + sessionMs(socket);
      last = { bytes, until };
    });
    return socket;
  };
}

function tooManyHandshakes(): GatewayError {
  return new GatewayError(
    'upstream-tls',
    `The upstream asked for more than ${MAX_HANDSHAKES} TLS handshakes on one connection.`,
    undefined,
    { proxyError: 'tls_protocol_error' },
  );
}

/** Called before anything is sent: a server without the pinned key sees no request. */
function checkIdentity(socket: TLSSocket, pins: readonly string[], onTls: ConnectorDeps['onTls']): TLSSocket {
  surfaceAlerts(socket);
  // Read first: in Node.js 24 the chain is empty after getPeerX509Certificate.
  const isPinned = pins.length === 0 || showsPin(socket.getPeerCertificate(true), pins);
  const seen = tlsSeenOn(socket);
  if (seen !== undefined) onTls(seen);
  if (isPinned) return socket;
  closeSocket(socket);
  throw new PinMissing();
}

/**
 * With TLS 1.3 an upstream says only after the handshake that it does not accept the client's certificate, and
 * closes. Node.js would emit the end, and not the alert before it.
 */
function surfaceAlerts(socket: TLSSocket): void {
  socket.on('error', (error) => {
    if (errorCode(error).includes('_ALERT_')) socket.destroy(error);
  });
}

/** The longest that a closure alert may take to leave, in milliseconds. */
const ALERT_TIME = 1_000;

/**
 * Closes a connection to a server. Over TLS it sends a closure alert first (RFC 9112 §9.8), unless bytes wait to be sent:
 * a server that does not read them would not read the alert either.
 */
export function closeSocket(socket: Socket): void {
  if (!(socket instanceof TLSSocket) || socket.writableLength > 0 || socket.destroyed) {
    socket.destroy();
    return;
  }
  const timer = setTimeout(() => socket.destroy(), ALERT_TIME);
  socket.once('close', () => clearTimeout(timer));
  socket.destroySoon();
}
