import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';

/**
 * A relay on which every connection has a latency of its own, as over a real network: requests that leave in
 * order on several connections arrive in another.
 */
export async function startUnevenRelay(
  port: number,
  latencyMs: (connection: number) => number,
): Promise<{ port: number; close(): Promise<void> }> {
  const open = new Set<Socket>();
  let count = 0;
  const server = createServer((client) => {
    count += 1;
    const latency = latencyMs(count);
    const upstream = connect(port, '127.0.0.1');
    for (const socket of [client, upstream]) {
      open.add(socket);
      socket.on('error', () => socket.destroy()).on('close', () => open.delete(socket));
    }
    client.on('data', (chunk) => setTimeout(() => upstream.write(chunk), latency));
    client.on('close', () => upstream.destroy());
    upstream.pipe(client);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const close = async (): Promise<void> => {
    server.close();
    for (const socket of open) socket.destroy();
    await once(server, 'close');
  };
  return { port: (server.address() as AddressInfo).port, close };
}
