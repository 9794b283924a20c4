import type { Socket } from 'node:net';

export type RefusalReason = 'total' | 'address';

export interface ConnectionLimitOptions {
  readonly connectionsPerAddress: number;
  /** True if many clients may share an address, such as a trusted proxy's; it is not limited then. */
  readonly isShared: (address: string) => boolean;
  readonly onRefused: (reason: RefusalReason) => void;
}

/** Limits the connections from one address, so that it cannot take all of them. */
export class ConnectionLimits {
  readonly #options: ConnectionLimitOptions;
  readonly #open = new Map<string, number>();

  constructor(options: ConnectionLimitOptions) {
    this.#options = options;
  }

  /**
   * Counts a connection until it closes. Above the limit it is destroyed without a response, which would
   * cost too much.
   */
  admit(socket: Socket): void {
    const { connectionsPerAddress, isShared, onRefused } = this.#options;
    const address = socket.remoteAddress ?? '';
    const open = this.#open.get(address) ?? 0;
    if (open >= connectionsPerAddress && !isShared(address)) {
      socket.destroy();
      onRefused('address');
      return;
    }
    this.#open.set(address, open + 1);
    socket.once('close', () => this.#release(address));
  }

  #release(address: string): void {
    const open = this.#open.get(address) ?? 0;
    if (open > 1) this.#open.set(address, open - 1);
    else this.#open.delete(address);
  }
}
