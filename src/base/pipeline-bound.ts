import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

/** Maximum number of pending requests on one connection. Few clients of small servers pipeline. */
const PIPELINED = 8;

/** Closes a connection with too many pending requests: one packet can hold more than a thousand. */
export function pipelineBound(): (req: IncomingMessage, res: ServerResponse, next: () => void) => void {
  const unanswered = new WeakMap<Socket, number>();
  return ({ socket }, res, next) => {
    const before = unanswered.get(socket) ?? 0;
    if (before >= PIPELINED) {
      socket.destroy();
      return;
    }
    unanswered.set(socket, before + 1);
    res.once('close', () => unanswered.set(socket, (unanswered.get(socket) ?? 1) - 1));
    next();
  };
}
