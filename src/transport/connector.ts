import { lookup } from 'node:dns';
import { createRequire } from 'node:module';
import { isIP, type Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import type { buildConnector } from 'undici';
import type { Clock } from '../base/clock.ts';
import { errorCode } from '../base/error-code.ts';
import { asGatewayError } from '../base/errors.ts';
import type { Credential } from '../credentials/credentials.ts';
import { closeSocket } from './close-socket.ts';
import { addressMissing, type Egress, leavingFrom } from './egress.ts';
import { PinMissing, showsPin } from './pins.ts';
import { ProxyTunnel } from './proxy-tunnel.ts';
import {
  checkServerName,
  secureContextFor,
  type TlsSeen,
  tlsSeenOn,
  type UpstreamTls,
} from './upstream-tls.ts';

const require = createRequire(import.meta.url);
/** By itself: undici's index also loads its clients, fetch and mocks, which take 15 MiB of memory. */
const build: typeof buildConnector = require('undici/lib/core/connect.js');

/** The addresses of a name that are tried: at most so many. */
const MOST_ADDRESSES = 8;
/** The part of the time for a connection after which the next address of a name is tried. */
const ATTEMPTS_IN_TIME = 5;

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

/** Makes one connection: from the local address, through the proxy, to an upstream whose identity is checked. */
export function connector(
  options: ConnectorOptions,
  { clock, proxyCredential, onTls, lookup: resolve = lookup }: ConnectorDeps,
): buildConnector.connector {
  const { tls, egress, origin, timeout } = options;
  const { localAddress, proxy } = egress;
  const connectWithin = connectorsWithin(tls, localAddress, resolve);
  const connect = connectWithin(timeout);
  const connectTo =
    localAddress === undefined ? connect : inTurn(connectWithin, timeout, leavingFrom(localAddress), resolve);
  const tunnel =
    proxy &&
    new ProxyTunnel({ proxy, origin, localAddress, timeout }, { clock, credential: proxyCredential });

  return (target, callback) => {
    const servername = tls.serverName ?? target.servername;
    const wanted = {
      ...target,
      ...(localAddress !== undefined && { localAddress }),
      ...(servername !== undefined && { servername }),
    };
    const checked: buildConnector.Callback = (...[error, socket]) => {
      if (error !== null) callback(explained(error, egress), null);
      else orFail(() => checkIdentity(socket, tls.pins, onTls, callback), socket, callback);
    };
    if (tunnel === undefined) {
      connectTo(wanted, checked);
      return;
    }
    tunnel.open().then(
      (httpSocket) => {
        if (target.protocol !== 'https:') callback(null, httpSocket);
        else orFail(() => connect({ ...wanted, httpSocket }, checked), httpSocket, callback);
      },
      (error) => callback(error, null),
    );
  };
}

/** Makes connectors by the time that a connection may take, in milliseconds. */
function connectorsWithin(
  tls: UpstreamTls,
  localAddress: string | undefined,
  resolve: typeof lookup,
): (timeout: number) => buildConnector.connector {
  const known = new Map<number, buildConnector.connector>();
  const secureContext = secureContextFor(tls);
  return (timeout) => {
    const connect =
      known.get(timeout) ??
      build({
        allowH2: false,
        timeout,
        rejectUnauthorized: true,
        checkServerIdentity: checkServerName,
        secureContext,
        // A session that is resumed does not show the whole chain, and the pin may be of any part of it.
        maxCachedSessions: tls.pins.length > 0 ? 0 : null,
        // Node.js tries the addresses of a name in turn (RFC 8305), each for 250 ms: too short for a far one.
        autoSelectFamilyAttemptTimeout: Math.ceil(timeout / ATTEMPTS_IN_TIME),
        lookup: resolve,
        ...leavingFrom(localAddress),
      });
    known.set(timeout, connect);
    return connect;
  };
}

/** Tries the addresses of a name in turn, each for a part of the time. From a local address, Node.js tries one only. */
function inTurn(
  connectWithin: (timeout: number) => buildConnector.connector,
  timeout: number,
  { family }: ReturnType<typeof leavingFrom>,
  resolve: typeof lookup,
): buildConnector.connector {
  return (target, callback) => {
    if (isIP(target.hostname) !== 0) {
      connectWithin(timeout)(target, callback);
      return;
    }
    resolve(target.hostname, { all: true, ...(family !== undefined && { family }) }, (error, found) => {
      const addresses = error === null ? found.slice(0, MOST_ADDRESSES) : [];
      const connect = connectWithin(Math.ceil(timeout / Math.max(1, addresses.length)));
      const attempt = (index: number, last: Error): void => {
        const address = addresses[index]?.address;
        if (address === undefined) {
          callback(last, null);
          return;
        }
        try {
          connect({ ...target, hostname: address }, (...[failure, socket]) => {
            if (failure === null) callback(null, socket);
            else attempt(index + 1, failure);
          });
        } catch (thrown) {
          // This is a callback: a throw would end the process.
          callback(asGatewayError(thrown), null);
        }
      };
      attempt(0, error ?? noAddress());
    });
  };
}

function noAddress(): Error {
  return Object.assign(new Error('The name has no address.'), { code: 'ENOTFOUND' });
}

/** A throw would leave the exchange waiting for a connection. */
function orFail(step: () => void, socket: Socket, callback: buildConnector.Callback): void {
  try {
    step();
  } catch (error) {
    socket.destroy();
    callback(asGatewayError(error), null);
  }
}

/** Called before anything is sent: a server without the pinned key sees no request. */
function checkIdentity(
  socket: Socket,
  pins: readonly string[],
  onTls: (seen: TlsSeen) => void,
  callback: buildConnector.Callback,
): void {
  if (!(socket instanceof TLSSocket)) {
    callback(null, socket);
    return;
  }
  surfaceAlerts(socket);
  const seen = tlsSeenOn(socket);
  if (seen !== undefined) onTls(seen);
  if (pins.length === 0 || showsPin(socket.getPeerCertificate(true), pins)) {
    callback(null, socket);
    return;
  }
  closeSocket(socket);
  callback(new PinMissing(), null);
}

/**
 * With TLS 1.3 an upstream says only after the handshake that it does not accept the client's certificate, and
 * closes. Node.js would tell of the end, and not of the alert before it.
 */
function surfaceAlerts(socket: TLSSocket): void {
  socket.on('error', (error) => {
    if (errorCode(error).includes('_ALERT_')) socket.destroy(error);
  });
}

function explained(error: Error, { localAddress }: Egress): Error {
  const missing = 'code' in error && error.code === 'EADDRNOTAVAIL' && localAddress !== undefined;
  return missing ? addressMissing(error) : error;
}
