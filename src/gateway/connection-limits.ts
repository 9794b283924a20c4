import type { Socket } from 'node:net';

export type RefusalReason = 'total' | 'address';

export interface ConnectionLimitOptions {
  readonly connectionsPerAddress: number;
  /** Whether many clients may share the connections from an address, so that it is not limited. */
  readonly isShared: (address: string) => boolean;
  readonly onRefused: (reason: RefusalReason) => void;
}

/** Keeps one address from taking every connection. */
export class ConnectionLimits {
  readonly #options: ConnectionLimitOptions;
  readonly #open = new Map<string, number>();

  constructor(options: ConnectionLimitOptions) {
    this.#options = options;
  }

  /** Counts a new connection until it closes, or closes it at once: an answer would cost more than it says. */
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
