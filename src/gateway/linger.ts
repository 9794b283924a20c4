import type { IncomingMessage } from 'node:http';
import { Socket } from 'node:net';
import type { Duplex } from 'node:stream';

/** How long a client may send nothing before it is given up, and the longest for all of it, in milliseconds. */
const IDLE_MS = 2_000;
const TOTAL_MS = 30_000;

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
  let seen = bytesRead(socket);
  let left = TOTAL_MS / IDLE_MS;
  const timer = setInterval(() => {
    const now = bytesRead(socket);
    left -= 1;
    if (now === seen || left <= 0) socket.destroy();
    seen = now;
  }, IDLE_MS).unref();
  return () => clearInterval(timer);
}

function bytesRead(socket: Duplex): number {
  return socket instanceof Socket ? socket.bytesRead : 0;
}
