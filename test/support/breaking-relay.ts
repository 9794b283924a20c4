import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';

/** `unseen`: the upstream gets nothing of the request; `seen`: it gets it, and its response is lost. */
export type Break = 'unseen' | 'seen';

export interface BreakingRelay {
  readonly port: number;
  /** Connections that were opened so far. */
  readonly connections: number;
  /** Resets each connection that is open now, as soon as a request comes on it. */
  breakOpen(kind: Break): void;
  /** Resets every connection now, both ends, whatever is under way on it. */
  resetAll(): void;
  /** Resets the connection on which the next request comes, whichever it is. */
  breakNext(kind: Break): void;
  close(): Promise<void>;
}

interface Way {
  readonly client: Socket;
  readonly upstream: Socket;
  breaks: Break | undefined;
}

/** A relay that passes connections on as they are, and breaks them when it is told to. */
export async function startBreakingRelay(port: number): Promise<BreakingRelay> {
  const ways = new Set<Way>();
  let connections = 0;
  let next: Break | undefined;
  const server = createServer((client) => {
    connections += 1;
    const upstream = connect({ port, host: '127.0.0.1' });
    const way: Way = { client, upstream, breaks: undefined };
    ways.add(way);
    for (const socket of [client, upstream]) {
      socket.on('error', () => socket.destroy());
      socket.on('close', () => {
        ways.delete(way);
        client.destroy();
        upstream.destroy();
      });
    }
    let handshakeDone = false;
    client.on('data', (chunk) => {
      // 0x17: TLS application data, so a request, unless it is the end of the handshake.
      const isRequest = handshakeDone && chunk[0] === 0x17;
      if (chunk[0] === 0x14 || chunk[0] === 0x17) handshakeDone = true;
      if (isRequest && next !== undefined) {
        way.breaks = next;
        next = undefined;
      }
      if (isRequest && way.breaks === 'unseen') client.resetAndDestroy();
      else upstream.write(chunk);
    });
    upstream.on('data', (chunk) => {
      if (way.breaks === 'seen' && chunk[0] === 0x17) client.resetAndDestroy();
      else client.write(chunk);
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    port: (server.address() as AddressInfo).port,
    get connections() {
      return connections;
    },
    breakOpen(kind) {
      for (const way of ways) way.breaks = kind;
    },
    resetAll() {
      for (const { client, upstream } of ways) {
        client.resetAndDestroy();
        upstream.resetAndDestroy();
      }
    },
    breakNext(kind) {
      next = kind;
    },
    async close() {
      server.close();
      for (const { client, upstream } of ways) {
        client.destroy();
        upstream.destroy();
      }
      await once(server, 'close');
    },
  };
}
