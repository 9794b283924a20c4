import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';

/** The way that one connection takes. */
export interface Way {
  readonly latencyMs?: number;
  /** The address that the upstream sees. */
  readonly from?: string;
}

/**
 * A relay on which every connection takes a way of its own, as over a real network: requests that leave in
 * order on several connections arrive in another, and replicas come from several addresses.
 */
export async function startUnevenRelay(
  port: number,
  wayOf: (connection: number) => Way,
): Promise<{ port: number; close(): Promise<void> }> {
  const open = new Set<Socket>();
  let count = 0;
  const server = createServer((client) => {
    count += 1;
    const { latencyMs, from } = wayOf(count);
    const upstream = connect({ port, host: '127.0.0.1', ...(from !== undefined && { localAddress: from }) });
    for (const socket of [client, upstream]) {
      open.add(socket);
      socket.on('error', () => socket.destroy()).on('close', () => open.delete(socket));
    }
    if (latencyMs === undefined) client.pipe(upstream);
    else client.on('data', (chunk) => setTimeout(() => upstream.write(chunk), latencyMs));
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
