import type { Server, Socket } from 'node:net';
import { senderNetwork } from './network.ts';

/** Counts what is open for each sender, so that one cannot take everything. */
export class PerSender {
  readonly #most: number;
  readonly #open = new Map<string, number>();

  constructor(most: number) {
    this.#most = most;
  }

  /** Counts one more for the sender at this address until the returned function is called; undefined: it has too many. */
  enter(address: string): (() => void) | undefined {
    const sender = senderNetwork(address);
    // Those behind a UNIX socket cannot be distinguished.
    if (sender === '') return () => {};
    const open = this.#open.get(sender) ?? 0;
    if (open >= this.#most) return undefined;
    this.#open.set(sender, open + 1);
    return () => {
      const left = (this.#open.get(sender) ?? 0) - 1;
      if (left > 0) this.#open.set(sender, left);
      else this.#open.delete(sender);
    };
  }
}

/** Closes a connection at once whose sender has as many already. */
export function boundConnections(server: Server, most: number): void {
  const connections = new PerSender(most);
  server.on('connection', (socket: Socket) => {
    const leave = connections.enter(socket.remoteAddress ?? '');
    if (leave === undefined) socket.destroy();
    else socket.once('close', leave);
  });
}
