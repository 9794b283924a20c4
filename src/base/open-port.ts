import { once } from 'node:events';
import { chmod, lstat, rm } from 'node:fs/promises';
import type { Server as HttpServer } from 'node:http';
import { type AddressInfo, connect, type Server } from 'node:net';
import { errorCode } from './error-code.ts';
import { ignoreSystemError } from './expected-errors.ts';
import { reportError } from './report-error.ts';

/** A port or socket that cannot be opened. The message names its key in the configuration, and the remedy. */
export class PortError extends Error {
  override readonly name = 'PortError';
}

/** Where a server listens. */
export interface OpenAddress {
  /** An IP address, or `unix:` and the path of a socket. */
  readonly address: string;
  /** 0 for a UNIX socket. */
  readonly port: number;
}

export interface PortOptions extends OpenAddress {
  /** The mode of the file of a UNIX socket, in octal. */
  readonly socketMode: string;
}

const UNIX = 'unix:';

/** Returns an address as `host:port`; that of a UNIX socket as it is. */
export function addressName({ address, port }: OpenAddress): string {
  if (socketPath(address) !== undefined) return address;
  return `${address.includes(':') ? `[${address}]` : address}:${port}`;
}

/** Returns the path of a UNIX socket; undefined for an IP address. */
export function socketPath(address: string): string | undefined {
  return address.startsWith(UNIX) ? address.slice(UNIX.length) : undefined;
}

/**
 * Opens the port or UNIX socket of a server; resolves to its address. `section`: its path in the configuration, such as
 * `control`.
 * @throws PortError, or another Error if the cause is unknown
 */
export async function openPort(
  server: Server,
  { address, port, socketMode }: PortOptions,
  section: string,
): Promise<OpenAddress> {
  const path = socketPath(address);
  if (path === undefined) server.listen(port, address);
  else server.listen(path);
  await once(server, 'listening').catch((error: unknown) => {
    throw path === undefined ? portError(error, address, port, section) : socketError(error, path, section);
  });
  // An accept error must not end the process.
  server.on('error', reportError);
  if (path === undefined) return server.address() as AddressInfo;
  await chmod(path, Number.parseInt(socketMode, 8)).catch((error: unknown) => {
    server.close();
    throw error;
  });
  return { address, port: 0 };
}

/** Closes a listener, and its connections at once; one that was never opened is closed. */
export async function closeServer(server: HttpServer): Promise<void> {
  if (!server.listening) return;
  const closed = once(server, 'close');
  server.close();
  server.closeAllConnections();
  await closed;
}

/**
 * Removes the file of a UNIX socket on which no process listens any more, as one that was killed leaves it. Call it
 * before any process of the gateway listens.
 * @throws PortError if another program listens on it, or the file is not a socket
 */
export async function removeStaleSocket(address: string, section: string): Promise<void> {
  const path = socketPath(address);
  const file = path === undefined ? undefined : await lstat(path).catch(ignoreSystemError);
  if (path === undefined || file === undefined) return;
  if (!file.isSocket()) {
    throw new PortError(
      `${section}.address: ${path} is a file, and not a socket: choose another path, or remove it`,
    );
  }
  if ((await probeSocket(path)) === 'ECONNREFUSED') await rm(path, { force: true });
}

/** Resolves to the error of a connection to a UNIX socket; '' if there is none. */
async function probeSocket(path: string): Promise<string> {
  const socket = connect(path);
  const code = await once(socket, 'connect').then(() => '', errorCode);
  socket.destroy();
  return code;
}

function portError(error: unknown, address: string, port: number, section: string): unknown {
  const cause = { cause: error };
  switch (errorCode(error)) {
    case 'EADDRINUSE':
      return new PortError(
        `${section}.port: another program listens on port ${port} of ${address}: stop it, or choose another port (demo: --free-ports)`,
        cause,
      );
    case 'EADDRNOTAVAIL':
      return new PortError(
        `${section}.address: ${address} is not an address of this machine: name one that is`,
        cause,
      );
    case 'EACCES':
      return new PortError(
        `${section}.port: this user may not open port ${port}: choose one from 1024 on, or allow it`,
        cause,
      );
    default:
      return error;
  }
}

function socketError(error: unknown, path: string, section: string): unknown {
  const cause = { cause: error };
  switch (errorCode(error)) {
    case 'EADDRINUSE':
      return new PortError(
        `${section}.address: another program listens on ${path}: stop it, or choose another path`,
        cause,
      );
    // libuv reports a folder that does not exist as EACCES.
    case 'EACCES':
    case 'EROFS':
      return new PortError(
        `${section}.address: the socket ${path} cannot be made: its folder must exist, and this user must be allowed to write to it`,
        cause,
      );
    default:
      return error;
  }
}
