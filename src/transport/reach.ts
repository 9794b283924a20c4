import { type LookupAddress, lookup as systemLookup } from 'node:dns';
import { isIP, type Socket, type TcpNetConnectOpts } from 'node:net';
import type { Clock } from '../base/clock.ts';
import { errorCode } from '../base/error-code.ts';
import { ignoreSystemError } from '../base/expected-errors.ts';
import { leavingFrom } from './egress.ts';
import { addressMissing, type TooLate } from './errors.ts';

/** Addresses of a name that are tried. */
const MAX_ADDRESSES = 8;
/** The part of the time for a connection after which the next address of a name is tried. */
const ATTEMPTS_IN_TIME = 5;
/** How long the addresses of the other family may take, in milliseconds: they only make the error more exact. */
const OTHER_FAMILY_MS = 500;
/** Idle time, in milliseconds, after which the system probes whether the peer is still there. */
const KEEP_ALIVE_MS = 60_000;

/** Where a connection goes; `socket`: through this one, of a tunnel. */
export type Opening = TcpNetConnectOpts & { readonly socket?: Socket };

/** How long a connection may take, in milliseconds: until TCP stands, and with TLS. */
export interface Limits {
  readonly tcp: number;
  readonly all: number;
}

/** Where a server listens. */
export interface Endpoint {
  /** A name, or an address without brackets. */
  readonly host: string;
  readonly port: number;
  readonly isTls: boolean;
}

/** `origin`: `https://host:port`. */
export function endpointOf(origin: string): Endpoint {
  const { protocol, hostname, port } = new URL(origin);
  const isTls = protocol === 'https:';
  return { host: hostname.replace(/^\[|\]$/g, ''), port: Number(port) || (isTls ? 443 : 80), isTls };
}

export interface Destination extends Endpoint {
  /** Undefined: the one that the system chooses. */
  readonly localAddress: string | undefined;
  /** Begins a connection, with TLS if `isTls`. */
  readonly open: (opts: Opening) => Socket;
  /** Left out: the system's. */
  readonly lookup?: typeof systemLookup;
}

/**
 * Connects to the first address of a name that accepts, TLS included, within `timeout` milliseconds. Rejects with an
 * error of Node.js or OpenSSL, or that of a local address which this host does not have.
 */
export async function reach(destination: Destination, timeout: number, clock: Clock): Promise<Socket> {
  try {
    return await connected(destination, timeout, clock);
  } catch (error) {
    const isMissing = destination.localAddress !== undefined && errorCode(error) === 'EADDRNOTAVAIL';
    throw isMissing ? addressMissing(error) : error;
  }
}

function connected(destination: Destination, timeout: number, clock: Clock): Promise<Socket> {
  const { host, port, localAddress, open, isTls, lookup = systemLookup } = destination;
  const tcp: TcpNetConnectOpts = {
    host,
    port,
    lookup,
    // Node.js tries the addresses of a name in turn (RFC 8305), each for 250 ms: too short for a far one.
    autoSelectFamilyAttemptTimeout: Math.ceil(timeout / ATTEMPTS_IN_TIME),
    ...leavingFrom(localAddress),
  };
  // From a local address, Node.js tries one address only.
  if (localAddress !== undefined && isIP(host) === 0) return eachAddress(tcp, destination, timeout, clock);
  return established(open(tcp), isTls, { tcp: timeout, all: timeout }, isIP(host) === 0);
}

/** Resolves when the socket is connected, TLS included. `byName`: it looks up a name first. */
export function established(socket: Socket, isTls: boolean, limits: Limits, byName = false): Promise<Socket> {
  return new Promise((resolve, reject) => {
    let isFound = !byName;
    socket.once('lookup', () => {
      isFound = true;
    });
    const tooLate = (): TooLate => {
      if (!socket.connecting) return 'ERR_TLS_HANDSHAKE_TIMEOUT';
      return isFound ? 'ETIMEDOUT' : 'ETIMEOUT';
    };
    const endAfter = (limit: number) => setTimeout(() => socket.destroy(timeoutError(tooLate())), limit);
    const timer = endAfter(limits.all);
    if (limits.tcp < limits.all) {
      const share = endAfter(limits.tcp);
      for (const end of ['connect', 'close']) socket.once(end, () => clearTimeout(share));
    }
    socket.setNoDelay(true).setKeepAlive(true, KEEP_ALIVE_MS);
    // It stays: an error without a listener, before the connection is somebody's, would end the process.
    socket.on('error', (error) => {
      clearTimeout(timer);
      reject(hasTimedOut(error) ? timeoutError('ETIMEDOUT', error) : error);
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

function timeoutError(code: TooLate, cause?: Error): Error {
  return Object.assign(new Error('The connection took too long.', { cause }), { code });
}

/** Tries the addresses of a name in turn, each for a part of the time, until TCP stands. */
async function eachAddress(
  tcp: TcpNetConnectOpts,
  { open, isTls, lookup = systemLookup }: Destination,
  timeout: number,
  clock: Clock,
): Promise<Socket> {
  const deadline = clock.now() + timeout;
  const found = await addressesOf(tcp, lookup, timeout).catch(async (error) => {
    if (errorCode(error) !== 'ENOTFOUND') throw error;
    const patience = Math.min(deadline - clock.now(), OTHER_FAMILY_MS);
    const others = await addressesOf({ host: tcp.host }, lookup, patience).catch(ignoreSystemError);
    throw others === undefined || others.length === 0 ? error : noAddress('EAI_ADDRFAMILY', error);
  });
  const addresses = found.slice(0, MAX_ADDRESSES);
  if (addresses.length === 0) throw noAddress('ENOTFOUND');
  let last: unknown = timeoutError('ETIMEOUT');
  for (const [at, { address }] of addresses.entries()) {
    const left = deadline - clock.now();
    // TLS of one address took all of it.
    if (left < 1) break;
    const limits = { tcp: Math.ceil(left / (addresses.length - at)), all: left };
    try {
      return await established(open({ ...tcp, host: address }), isTls, limits);
    } catch (error) {
      last = error;
    }
  }
  throw last;
}

/** `EAI_ADDRFAMILY`: it has addresses of the other family. */
function noAddress(code: 'ENOTFOUND' | 'EAI_ADDRFAMILY', cause?: Error): Error {
  return Object.assign(new Error('The name has no address that the local address reaches.', { cause }), {
    code,
  });
}

function addressesOf(
  { host = '', family }: Pick<TcpNetConnectOpts, 'host' | 'family'>,
  lookup: typeof systemLookup,
  timeout: number,
): Promise<LookupAddress[]> {
  return new Promise((done, fail) => {
    // The system waits for name servers for as long as resolv.conf says, often half a minute.
    const timer = setTimeout(() => fail(timeoutError('ETIMEOUT')), timeout);
    lookup(host, { all: true, ...(family !== undefined && { family }) }, (error, addresses) => {
      clearTimeout(timer);
      if (error === null) done(addresses);
      else fail(error);
    });
  });
}
