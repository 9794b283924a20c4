import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';

/**
 * `open`: passes everything on; `refusing`: nobody listens; `silent`: accepts connections, and nothing comes back;
 * `resetting`: resets a connection when the first bytes of a request come.
 */
export type RelayMode = 'open' | 'refusing' | 'silent' | 'resetting';

export interface SwitchedRelay {
  readonly port: number;
  /** Connections that were accepted so far. */
  readonly connections: number;
  /** Pieces of requests that came so far: TLS records with application data. */
  readonly requests: number;
  /** Switches connections that are open, too; `refusing` ends them. */
  set(mode: RelayMode): Promise<void>;
  close(): Promise<void>;
}

/** A relay to a port of this host that fails in the way that a test wants, and recovers on the same port. */
export async function startSwitchedRelay(target: number, first: RelayMode = 'open'): Promise<SwitchedRelay> {
  const open = new Set<Socket>();
  let mode: RelayMode = 'open';
  let connections = 0;
  let requests = 0;
  const server = createServer((client) => {
    connections += 1;
    const upstream = connect({ port: target, host: '127.0.0.1' });
    for (const socket of [client, upstream]) {
      open.add(socket);
      socket.on('error', () => socket.destroy()).on('close', () => open.delete(socket));
    }
    const requestsIn = requestCounter();
    client.on('data', (chunk: Buffer) => {
      // 0x17: TLS application data.
      const count = requestsIn(chunk);
      requests += count;
      if (mode === 'resetting' && count > 0) client.resetAndDestroy();
      else upstream.write(chunk);
    });
    upstream.on('data', (chunk) => {
      if (mode !== 'silent') client.write(chunk);
    });
    client.on('close', () => upstream.destroy());
    upstream.on('close', () => client.destroy());
  });
  const listen = async (port: number): Promise<void> => {
    server.listen(port, '127.0.0.1');
    await once(server, 'listening');
  };
  const stop = async (): Promise<void> => {
    if (!server.listening) return;
    server.close();
    for (const socket of open) socket.destroy();
    await once(server, 'close');
  };
  await listen(0);
  const { port } = server.address() as AddressInfo;
  const relay: SwitchedRelay = {
    port,
    get connections() {
      return connections;
    },
    get requests() {
      return requests;
    },
    async set(next) {
      mode = next;
      if (next === 'refusing') await stop();
      else if (!server.listening) await listen(port);
    },
    close: stop,
  };
  await relay.set(first);
  return relay;
}

const RECORD_HEADER = 5;
const APPLICATION_DATA = 0x17;

/** Counts the records with application data of a client of TLS 1.3 but for the first, which ends the handshake. */
function requestCounter(): (chunk: Buffer) => number {
  let bytes = Buffer.alloc(0);
  let records = 0;
  return (chunk) => {
    bytes = Buffer.concat([bytes, chunk]);
    const before = Math.max(1, records);
    while (bytes.length >= RECORD_HEADER && bytes.length >= RECORD_HEADER + bytes.readUInt16BE(3)) {
      if (bytes[0] === APPLICATION_DATA) records += 1;
      bytes = bytes.subarray(RECORD_HEADER + bytes.readUInt16BE(3));
    }
    return Math.max(0, records - before);
  };
}
