import type { Socket } from 'node:net';
import { addressOf } from '../base/client-address.ts';

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
  /** Numbers of open connections by address. */
  readonly #perAddress = new Map<string, number>();

  constructor(options: ConnectionLimitsOptions) {
    this.#options = options;
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
    const { connectionsPerAddress, isShared } = this.#options;
    const address = addressOf(socket);
    // Clients of a UNIX socket cannot be distinguished.
    if (address === '') return true;
    const open = this.#perAddress.get(address) ?? 0;
    if (open >= connectionsPerAddress && !isShared(address)) return false;
    this.#perAddress.set(address, open + 1);
    socket.once('close', () => {
      const left = (this.#perAddress.get(address) ?? 0) - 1;
      if (left > 0) this.#perAddress.set(address, left);
      else this.#perAddress.delete(address);
    });
    return true;
  }
}
