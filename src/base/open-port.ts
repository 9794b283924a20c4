import { once } from 'node:events';
import type { AddressInfo, Server } from 'node:net';
import { errorCode } from './error-code.ts';
import { reportError } from './report-error.ts';

/** A port that cannot be opened. The message names its key in the configuration, and the remedy. */
export class PortError extends Error {
  override readonly name = 'PortError';
}

/**
 * Opens the port of a server; resolves to its address. `section`: the section of the configuration that has
 * its address and port.
 * @throws PortError, or another Error if the cause is unknown
 */
export async function openPort(
  server: Server,
  { address, port }: { readonly address: string; readonly port: number },
  section: 'listen' | 'control',
): Promise<AddressInfo> {
  server.listen(port, address);
  await once(server, 'listening').catch((error: unknown) => {
    throw portError(error, address, port, section);
  });
  // An accept error must not end the process.
  server.on('error', reportError);
  return server.address() as AddressInfo;
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
