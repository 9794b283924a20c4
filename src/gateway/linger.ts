import type { IncomingMessage } from 'node:http';
import { Socket } from 'node:net';
import type { Duplex } from 'node:stream';

/**
 * Time without a byte after which the connection is closed, and the limit for the whole wait, in
 * milliseconds.
 */
const IDLE_MS = 2_000;
const TOTAL_MS = 30_000;
/** Number of checks without a change before a count is considered stalled. */
const PARTS = 4;

/**
 * Reads and discards the rest of the body after an early response. Closing at once would reset the
 * connection, and a client that sends its whole body before it reads would lose the response.
 */
export function linger(req: IncomingMessage): void {
  if (req.complete || req.destroyed) return;
  // The upstream's reader still listens to the stream, and would keep it from flowing.
  req.removeAllListeners('readable');
  req.resume();
  // Node emits no 'close' for a request that is incomplete when the connection ends after its response.
  req.once('close', closeWhenIdle(req.socket));
}

/** Does the same for a socket that serves no further request and whose own side has ended. */
export function lingerOn(socket: Duplex): void {
  // Without a listener, a reset by the client would be an uncaught error.
  socket.on('error', () => socket.destroy());
  socket.resume();
  closeWhenIdle(socket);
}

/**
 * Destroys the socket when no byte comes for `IDLE_MS`, or after `TOTAL_MS`. The watch ends with the socket; the function
 * that is returned ends it before.
 */
function closeWhenIdle(socket: Duplex): () => void {
  // A socket that is closed emits no 'close' any more, and the watch would never end.
  if (socket.closed) return () => {};
  const close = (): void => void socket.destroy();
  const stop = onStall(IDLE_MS, () => bytesRead(socket), close);
  const timer = setTimeout(close, TOTAL_MS).unref();
  const end = (): void => {
    stop();
    clearTimeout(timer);
    socket.off('close', end);
  };
  socket.once('close', end);
  return end;
}

function bytesRead(socket: Duplex): number {
  return socket instanceof Socket ? socket.bytesRead : 0;
}

/**
 * Calls `stalled` when a count has not changed for `idleMs` milliseconds, up to a quarter late, and again
 * after each such period. Returns a function that stops the watch.
 */
export function onStall(idleMs: number, count: () => number, stalled: () => void): () => void {
  let seen = count();
  let quiet = 0;
  const timer = setInterval(
    () => {
      const now = count();
      quiet = now === seen ? quiet + 1 : 0;
      seen = now;
      if (quiet < PARTS) return;
      quiet = 0;
      stalled();
    },
    Math.ceil(idleMs / PARTS),
  ).unref();
  return () => clearInterval(timer);
}
