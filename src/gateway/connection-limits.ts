import type { Socket } from 'node:net';
import { addressOf } from '../base/client-address.ts';
import { OpenCounts } from '../base/open-counts.ts';

export interface ConnectionLimitsOptions {
  /** Maximum number of open connections. */
  readonly connections: number;
  /** Maximum number of open connections from one address, so that it cannot take all of them. */
  readonly connectionsPerAddress: number;
  /** True if many clients may share an address, such as a trusted proxy's; it is not limited then. */
  readonly isShared: (address: string) => boolean;
}

/** Counts the open connections of all listeners together. */
export class ConnectionLimits {
  readonly #options: ConnectionLimitsOptions;
  #open = 0;
  readonly #perAddress: OpenCounts;

  constructor(options: ConnectionLimitsOptions) {
    this.#options = options;
    this.#perAddress = new OpenCounts(options.connectionsPerAddress);
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

  /** Counts a connection for its address, which a PROXY header may have named; false: the address has too many. */
  admitAddress(socket: Socket): boolean {
    // Clients of a UNIX socket cannot be distinguished: their address is ''.
    const leave = this.#perAddress.enter(addressOf(socket), this.#options.isShared);
    if (leave === undefined) return false;
    socket.once('close', leave);
    return true;
  }
}
