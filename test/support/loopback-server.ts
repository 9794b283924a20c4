import { once } from 'node:events';
import type { AddressInfo, Server, Socket } from 'node:net';

/** A server on a free port of loopback. Its end breaks all connections off. */
export interface LoopbackServer extends AsyncDisposable {
  readonly port: number;
  close(): Promise<void>;
}

/** Opens a port of a server, which may be one of TLS. */
export async function listenOnLoopback(server: Server, port = 0): Promise<LoopbackServer> {
  const sockets = new Set<Socket>();
  server.on('connection', (socket: Socket) => {
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket));
  });
  server.listen(port, '127.0.0.1');
  await once(server, 'listening');
  const close = async (): Promise<void> => {
    server.close();
    for (const socket of sockets) socket.destroy();
    await once(server, 'close');
  };
  return { port: (server.address() as AddressInfo).port, close, [Symbol.asyncDispose]: close };
}
