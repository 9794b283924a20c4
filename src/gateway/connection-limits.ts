import type { Socket } from 'node:net';
import { addressOf } from '../base/client-address.ts';
import { senderNetwork } from '../base/network.ts';
import { OpenCounts } from '../base/open-counts.ts';

/** Share of the files of this process that connections of clients may take: others are for upstreams, Redis and the audit log. */
const FILES_SHARE = 0.75;

interface Bounds {
  /** Maximum number of open connections. */
  readonly connections: number;
  /** Maximum number of open connections from one address, so that it cannot take all of them. */
  readonly connectionsPerAddress: number;
}

export interface ConnectionLimitsOptions extends Bounds {
  /** True if many clients may share an address, such as a trusted proxy's; it is not limited then. */
  readonly isShared: (address: string) => boolean;
}

/** Counts the open connections of all listeners together. */
export class ConnectionLimits {
  readonly #options: ConnectionLimitsOptions;
  #open = 0;
  readonly #perAddress: OpenCounts;
  /** By /64 for IPv6, where one sender has as many addresses as it likes. */
  readonly #perNetwork: OpenCounts;

  constructor(options: ConnectionLimitsOptions) {
    this.#options = options;
    const { connections, connectionsPerAddress } = options;
    this.#perAddress = new OpenCounts(connectionsPerAddress);
    this.#perNetwork = new OpenCounts(Math.max(connectionsPerAddress, Math.floor(connections / 2)));
  }

  /** Counts a new connection until it closes; false: there are too many. */
  admit(socket: Socket): boolean {
    if (this.#open >= this.#options.connections) return false;
    this.#open += 1;
    socket.once('close', () => {
      this.#open -= 1;
    });
    return true;
  }

  /** Counts a connection for its address, which a PROXY header may have named; false: its sender has too many. */
  admitAddress(socket: Socket): boolean {
    // Clients of a UNIX socket cannot be distinguished: their address is ''.
    const address = addressOf(socket);
    const { isShared } = this.#options;
    const leaveAddress = this.#perAddress.enter(address, isShared);
    if (leaveAddress === undefined) return false;
    // A shared address must not use up the share of those beside it.
    const leaveNetwork = this.#perNetwork.enter(isShared(address) ? '' : senderNetwork(address));
    if (leaveNetwork === undefined) {
      leaveAddress();
      return false;
    }
    socket.once('close', () => {
      leaveAddress();
      leaveNetwork();
    });
    return true;
  }
}

/** Returns the limits, or lower ones if the process may open too few files for them. */
export function withinFiles({ connections, connectionsPerAddress }: Bounds, files: number): Bounds {
  const most = Math.floor(files * FILES_SHARE);
  if (connections <= most) return { connections, connectionsPerAddress };
  return { connections: most, connectionsPerAddress: Math.min(connectionsPerAddress, Math.ceil(most / 2)) };
}
