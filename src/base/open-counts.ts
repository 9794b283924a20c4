import type { Server, Socket } from 'node:net';
import { senderNetwork } from './network.ts';

/** Counts what is open by sender, so that one cannot take everything. */
export class OpenCounts {
  readonly #most: number;
  readonly #open = new Map<string, number>();

  constructor(most: number) {
    this.#most = most;
  }

  /**
   * Counts one more for this sender until the returned function is called; undefined: it has too many. `isShared`: many
   * clients may share it, so that it is counted and not limited. Senders that cannot be distinguished are ''.
   */
  enter(sender: string, isShared?: (sender: string) => boolean): (() => void) | undefined {
    if (sender === '') return () => {};
    const open = this.#open.get(sender) ?? 0;
    if (open >= this.#most && isShared?.(sender) !== true) return undefined;
    this.#open.set(sender, open + 1);
    return () => {
      const left = (this.#open.get(sender) ?? 0) - 1;
      if (left > 0) this.#open.set(sender, left);
      else this.#open.delete(sender);
    };
  }
}

/** Closes a connection at once whose sender has as many already, or has no address any more. */
export function boundConnections(server: Server, most: number): void {
  const connections = new OpenCounts(most);
  server.on('connection', (socket: Socket) => {
    const { remoteAddress = '' } = socket;
    // A client that has reset its connection has no address any more, and would pass for one of a UNIX socket.
    const isGone = remoteAddress === '' && typeof server.address() !== 'string';
    const leave = isGone ? undefined : connections.enter(senderNetwork(remoteAddress));
    if (leave === undefined) socket.destroy();
    else socket.once('close', leave);
  });
}
