import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';

/** How long a client that is still sending gets to read an answer that came early, in milliseconds. */
const LINGER_MS = 2_000;

/**
 * After an answer that did not wait for the whole body: takes what still comes, for a while. Closing at
 * once would reset the connection and with it the answer.
 */
export function linger(req: IncomingMessage): void {
  if (req.complete || req.destroyed) return;
  // Whoever read the body for the upstream still holds it, and would keep it from flowing.
  req.removeAllListeners('readable');
  req.resume();
  const timer = closeLater(req.socket);
  req.once('close', () => clearTimeout(timer));
}

/** The same for a connection that serves no further request; our side of it has been ended. */
export function lingerOn(socket: Duplex): void {
  // A client that goes before its time is no news; without a listener the error would end the process.
  socket.on('error', () => socket.destroy());
  socket.resume();
  const timer = closeLater(socket);
  socket.once('close', () => clearTimeout(timer));
}

function closeLater(socket: Duplex): NodeJS.Timeout {
  return setTimeout(() => socket.destroy(), LINGER_MS).unref();
}
