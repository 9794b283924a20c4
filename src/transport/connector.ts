import { type LookupAddress, lookup } from 'node:dns';
import { isIP, connect as openTcp, type Socket, type TcpNetConnectOpts } from 'node:net';
import { connect as openTls, TLSSocket, type ConnectionOptions as TlsConnectOpts } from 'node:tls';
import type { Clock } from '../base/clock.ts';
import { errorCode } from '../base/error-code.ts';
import type { Credential } from '../credentials/credentials.ts';
import { type Egress, leavingFrom } from './egress.ts';
import { addressMissing } from './errors.ts';
import { ProxyTunnel } from './proxy-tunnel.ts';
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

/** Addresses of a name that are tried. */
const MAX_ADDRESSES = 8;
/** The part of the time for a connection after which the next address of a name is tried. */
const ATTEMPTS_IN_TIME = 5;
/** Idle time, in milliseconds, after which the system probes whether the peer is still there. */
const KEEP_ALIVE_MS = 60_000;

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
  const resolve = deps.lookup ?? lookup;
  const { protocol, hostname, port } = new URL(origin);
  const host = hostname.replace(/^\[|\]$/g, '');
  const tcp: TcpNetConnectOpts = {
    host,
    port: Number(port) || (protocol === 'https:' ? 443 : 80),
    lookup: resolve,
    // Node.js tries the addresses of a name in turn (RFC 8305), each for 250 ms: too short for a far one.
    autoSelectFamilyAttemptTimeout: Math.ceil(timeout / ATTEMPTS_IN_TIME),
    ...leavingFrom(localAddress),
  };
  const open: (opts: Opening) => Socket = protocol === 'https:' ? tlsOpener(tls, host, deps.clock) : openTcp;
  const connected: Connected = async (opts, limits) => established(open(opts), protocol === 'https:', limits);
  const whole: Limits = { tcp: timeout, all: timeout };
  const identified = async (opening: Promise<Socket>): Promise<Socket> => {
    const socket = await opening;
    return protocol === 'https:' ? checkIdentity(socket as TLSSocket, tls.pins, deps.onTls) : socket;
  };
  if (proxy !== undefined) {
    const tunnel = new ProxyTunnel(
      { proxy, origin, localAddress, timeout },
      { clock: deps.clock, credential: deps.proxyCredential },
    );
    return async () => {
      const socket = await tunnel.open();
      return protocol === 'https:' ? identified(connected({ ...tcp, socket }, whole)) : socket;
    };
  }
  if (localAddress === undefined) return () => identified(connected(tcp, whole));
  return () =>
    identified(eachAddress(tcp, { timeout, clock: deps.clock, resolve, connected })).catch((error) => {
      throw errorCode(error) === 'EADDRNOTAVAIL' ? addressMissing(error) : error;
    });
}

/** Where a connection goes; `socket`: through this one, of a tunnel. */
type Opening = TcpNetConnectOpts & { readonly socket?: Socket };

/** How long a connection may take, in milliseconds: until TCP stands, and with TLS. */
interface Limits {
  readonly tcp: number;
  readonly all: number;
}

type Connected = (opts: Opening, limits: Limits) => Promise<Socket>;

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

/** Resolves when the socket is connected, TLS included. */
function established(socket: Socket, isTls: boolean, limits: Limits): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const endAfter = (limit: number) => setTimeout(() => socket.destroy(connectTimeout()), limit);
    const timer = endAfter(limits.all);
    if (limits.tcp < limits.all) {
      const share = endAfter(limits.tcp);
      for (const end of ['connect', 'close']) socket.once(end, () => clearTimeout(share));
    }
    socket.setNoDelay(true).setKeepAlive(true, KEEP_ALIVE_MS);
    // It stays: an error without a listener, before the connection is somebody's, would end the process.
    socket.on('error', (error) => {
      clearTimeout(timer);
      reject(hasTimedOut(error) ? connectTimeout(error) : error);
    });
    socket.once(isTls ? 'secureConnect' : 'connect', () => {
      clearTimeout(timer);
      resolve(socket);
    });
  });
}

/** The addresses of a name were tried in turn, and one of them took too long. */
function hasTimedOut(error: Error): boolean {
  return error instanceof AggregateError && error.errors.some((each) => errorCode(each) === 'ETIMEDOUT');
}

function connectTimeout(cause?: Error): Error {
  return Object.assign(new Error('The connection took too long.', { cause }), { code: 'ETIMEDOUT' });
}

interface AddressesOptions {
  /** For the lookup and all addresses, in milliseconds. */
  readonly timeout: number;
  readonly clock: Clock;
  readonly resolve: typeof lookup;
  readonly connected: Connected;
}

/**
 * Tries the addresses of a name in turn, each for a part of the time, until TCP stands. From a local address, Node.js
 * tries one only.
 */
async function eachAddress(tcp: TcpNetConnectOpts, options: AddressesOptions): Promise<Socket> {
  const { timeout, clock, connected } = options;
  if (isIP(tcp.host ?? '') !== 0) return connected(tcp, { tcp: timeout, all: timeout });
  const deadline = clock.now() + timeout;
  const addresses = (await addressesOf(tcp, options)).slice(0, MAX_ADDRESSES);
  if (addresses.length === 0)
    throw Object.assign(new Error('The name has no address.'), { code: 'ENOTFOUND' });
  let last: unknown = connectTimeout();
  for (const [at, { address }] of addresses.entries()) {
    const left = deadline - clock.now();
    // TLS of one address took all of it.
    if (left < 1) break;
    try {
      return await connected(
        { ...tcp, host: address },
        { tcp: Math.ceil(left / (addresses.length - at)), all: left },
      );
    } catch (error) {
      last = error;
    }
  }
  throw last;
}

function addressesOf(
  { host = '', family }: TcpNetConnectOpts,
  { timeout, resolve }: AddressesOptions,
): Promise<LookupAddress[]> {
  return new Promise((done, fail) => {
    // The system waits for name servers for as long as resolv.conf says, often half a minute.
    const timer = setTimeout(() => fail(connectTimeout()), timeout);
    resolve(host, { all: true, ...(family !== undefined && { family }) }, (error, addresses) => {
      clearTimeout(timer);
      if (error === null) done(addresses);
      else fail(error);
    });
  });
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
