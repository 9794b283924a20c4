import { once } from 'node:events';
import type { AddressInfo, Server, Socket } from 'node:net';

/** A server on a free port of loopback. Its disposal breaks all connections off. */
export interface LoopbackServer extends AsyncDisposable {
  readonly port: number;
}

/** Opens the port of a server, which may be one of TLS. */
export async function listenOnLoopback(server: Server): Promise<LoopbackServer> {
  const sockets = new Set<Socket>();
  server.on('connection', (socket: Socket) => {
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    port: (server.address() as AddressInfo).port,
    async [Symbol.asyncDispose]() {
      server.close();
      for (const socket of sockets) socket.destroy();
      await once(server, 'close');
    },
  };
}
