import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';

/** The longest that a closure alert may take to leave, in milliseconds. */
const ALERT_TIME = 1_000;

/**
 * Closes a connection to a server. Over TLS it sends a closure alert first (RFC 9112 §9.8), unless bytes wait to be sent:
 * a server that does not read them would not read the alert either.
 */
export function closeSocket(socket: Socket): void {
  if (!(socket instanceof TLSSocket) || socket.writableLength > 0 || socket.destroyed) {
    socket.destroy();
    return;
  }
  const timer = setTimeout(() => socket.destroy(), ALERT_TIME);
  socket.once('close', () => clearTimeout(timer));
  socket.destroySoon();
}
