import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';

/** The way that a connection takes. */
export interface Way {
  /** Latency of requests, in milliseconds. */
  readonly requestMs?: number;
  /** … and of answers. */
  readonly answerMs?: number;
  /** The address that the other end sees. */
  readonly from?: string;
}

export interface Relay {
  readonly port: number;
  close(): Promise<void>;
}

/**
 * A relay on which every connection, the first of which is 1, takes a way of its own, as over a real network:
 * requests that leave in order on several connections arrive in another. The latency can change on the way.
 */
export async function startRelay(port: number, wayOf: (connection: number) => Way): Promise<Relay> {
  const open = new Set<Socket>();
  let count = 0;
  const server = createServer((client) => {
    count += 1;
    const connection = count;
    const { from } = wayOf(connection);
    const upstream = connect({ port, host: '127.0.0.1', ...(from !== undefined && { localAddress: from }) });
    for (const socket of [client, upstream]) {
      open.add(socket);
      socket.on('error', () => socket.destroy()).on('close', () => open.delete(socket));
    }
    pass(client, upstream, () => wayOf(connection).requestMs);
    pass(upstream, client, () => wayOf(connection).answerMs);
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

/** Passes everything on, late and in order. */
function pass(from: Socket, to: Socket, latencyMs: () => number | undefined): void {
  let sent = Promise.resolve();
  from.on('data', (chunk) => {
    const late = delay(latencyMs() ?? 0, undefined, { ref: false });
    sent = sent.then(() => late).then(() => void to.write(chunk));
  });
  from.on('close', () => void sent.then(() => to.destroy()));
}
