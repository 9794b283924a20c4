import type { Socket } from 'node:net';

const announced = new WeakMap<Socket, string>();

/** Sets the client's address of a connection to the one that a trusted proxy announced in front of it. */
export function announceAddress(socket: Socket, address: string): void {
  announced.set(socket, address);
}

/** Returns the address of the client of a connection; '' over a UNIX socket, or if the connection has ended. */
export function addressOf(socket: Socket): string {
  return announced.get(socket) ?? socket.remoteAddress ?? '';
}

/** True if a trusted proxy announced the address: it may have ended TLS, too. */
export function isAnnounced(socket: Socket): boolean {
  return announced.has(socket);
}
