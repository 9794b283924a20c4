import type { IncomingMessage } from 'node:http';
import { Socket } from 'node:net';
import type { Duplex } from 'node:stream';

/** How long a client may send nothing before it is given up, and the longest for all of it, in milliseconds. */
const IDLE_MS = 2_000;
const TOTAL_MS = 30_000;
/** A count is looked at so many times before it is taken to stand still. */
const PARTS = 4;

/**
 * Reads on after a response that did not wait for the whole body, for as long as bytes come. Closing at once
 * would reset the connection, and a client that sends its whole body before it reads would lose the response.
 */
export function linger(req: IncomingMessage): void {
  if (req.complete || req.destroyed) return;
  // The reader for the upstream still holds the stream, and would keep it from flowing.
  req.removeAllListeners('readable');
  req.resume();
  const stop = closeWhenIdle(req.socket);
  req.once('close', stop);
}

/** The same for a connection that serves no further request and whose own side has been ended. */
export function lingerOn(socket: Duplex): void {
  // Without a listener, a reset by the client would be an uncaught error.
  socket.on('error', () => socket.destroy());
  socket.resume();
  const stop = closeWhenIdle(socket);
  socket.once('close', stop);
}

/** Destroys the socket once nothing has come for a while, or at the end of its time. Returns what ends the watch. */
function closeWhenIdle(socket: Duplex): () => void {
  const close = (): void => void socket.destroy();
  const stop = onStall(IDLE_MS, () => bytesRead(socket), close);
  const end = setTimeout(close, TOTAL_MS).unref();
  return () => {
    stop();
    clearTimeout(end);
  };
}

function bytesRead(socket: Duplex): number {
  return socket instanceof Socket ? socket.bytesRead : 0;
}

/**
 * Calls back when a count has stood still for `idleMs`, in milliseconds, and again each time that it has; up to a
 * quarter later. Returns what ends the watch.
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
