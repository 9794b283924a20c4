import { createRequire } from 'node:module';
import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import type { buildConnector } from 'undici';
import type { Clock } from '../base/clock.ts';
import { errorCode } from '../base/error-code.ts';
import { asGatewayError } from '../base/errors.ts';
import type { Credential } from '../credentials/credentials.ts';
import { addressMissing, type Egress, leavingFrom } from './egress.ts';
import { PinMissing, showsPin } from './pins.ts';
import { ProxyTunnel } from './proxy-tunnel.ts';
import { secureContextFor, type TlsSeen, tlsSeenOn, type UpstreamTls } from './upstream-tls.ts';

const require = createRequire(import.meta.url);
/** By itself: undici's index also loads its clients, fetch and mocks, which take 15 MiB of memory. */
const build: typeof buildConnector = require('undici/lib/core/connect.js');

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
}

/** Makes one connection: from the local address, through the proxy, to an upstream whose identity is checked. */
export function connector(
  options: ConnectorOptions,
  { clock, proxyCredential, onTls }: ConnectorDeps,
): buildConnector.connector {
  const { tls, egress, origin, timeout } = options;
  const { localAddress, proxy } = egress;
  const connect = build({
    allowH2: false,
    timeout,
    rejectUnauthorized: true,
    secureContext: secureContextFor(tls),
    // A session that is resumed does not show the whole chain, and the pin may be of any part of it.
    maxCachedSessions: tls.pins.length > 0 ? 0 : null,
    ...leavingFrom(localAddress),
  });
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
      connect(wanted, checked);
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
  socket.destroy();
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
