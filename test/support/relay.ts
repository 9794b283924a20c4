import { connect, createServer, type Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { type LoopbackServer, listenOnLoopback } from './loopback-server.ts';
import { freePort } from './server-process.ts';

/** Connects to the port for a client. */
function connectFor(client: Socket, port: number, localAddress?: string): Socket {
  const upstream = connect({ port, host: '127.0.0.1', ...(localAddress !== undefined && { localAddress }) });
  for (const socket of [client, upstream]) socket.on('error', () => socket.destroy());
  return upstream;
}

/** The same, and the end of one is the end of the other. */
function pairFor(client: Socket, port: number): Socket {
  const upstream = connectFor(client, port);
  client.on('close', () => upstream.destroy());
  upstream.on('close', () => client.destroy());
  return upstream;
}

interface SocketPair {
  readonly client: Socket;
  readonly upstream: Socket;
}

function resetPairs(pairs: Iterable<SocketPair>): void {
  for (const { client, upstream } of pairs) {
    client.resetAndDestroy();
    upstream.resetAndDestroy();
  }
}

/** The way that a connection takes. */
export interface Way {
  /** Latency of requests, in milliseconds. */
  readonly requestMs?: number;
  /** … and of answers. */
  readonly answerMs?: number;
  /** The address that the other end sees. */
  readonly from?: string;
  /** Left out: the port of the relay. */
  readonly port?: number;
}

/**
 * A relay on which every connection, the first of which is 1, takes a way of its own, as over a real network:
 * requests that leave in order on several connections arrive in another. The latency can change on the way.
 */
export async function startRelay(port: number, wayOf: (connection: number) => Way): Promise<LoopbackServer> {
  let count = 0;
  const server = createServer((client) => {
    count += 1;
    const connection = count;
    const { from, port: to = port } = wayOf(connection);
    const upstream = connectFor(client, to, from);
    pass(client, upstream, () => wayOf(connection).requestMs);
    pass(upstream, client, () => wayOf(connection).answerMs);
  });
  return listenOnLoopback(server);
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
  /** Resets every connection now, both ends, whatever is under way on it. */
  resetAll(): void;
  close(): Promise<void>;
}

/** A relay to a port of this host that fails in the way that a test wants, and recovers on the same port. */
export async function startSwitchedRelay(target: number, first: RelayMode = 'open'): Promise<SwitchedRelay> {
  let mode: RelayMode = 'open';
  let connections = 0;
  let requests = 0;
  const pairs = new Set<SocketPair>();
  const onConnection = (client: Socket): void => {
    connections += 1;
    const upstream = pairFor(client, target);
    const pair = { client, upstream };
    pairs.add(pair);
    client.on('close', () => pairs.delete(pair));
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
  };
  // While nobody listens, the system must not give the port to a connection of another process.
  const port = await freePort();
  let listening: LoopbackServer | undefined = await listenOnLoopback(createServer(onConnection), port);
  const stop = async (): Promise<void> => {
    const before = listening;
    listening = undefined;
    await before?.close();
  };
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
      else listening ??= await listenOnLoopback(createServer(onConnection), port);
    },
    resetAll() {
      resetPairs(pairs);
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

/** `unseen`: the upstream gets nothing of the request; `seen`: it gets it, and its response is lost. */
export type Break = 'unseen' | 'seen';

export interface BreakingRelay extends LoopbackServer {
  /** Connections that were opened so far. */
  readonly connections: number;
  /** Resets each connection that is open now, as soon as a request comes on it. */
  breakOpen(kind: Break): void;
  /** Resets every connection now, both ends, whatever is under way on it. */
  resetAll(): void;
  /** Resets the connection on which the next request comes, whichever it is. */
  breakNext(kind: Break): void;
}

interface BreakingPair extends SocketPair {
  breaks: Break | undefined;
}

/** A relay that passes connections on as they are, and breaks them when it is told to. */
export async function startBreakingRelay(port: number): Promise<BreakingRelay> {
  const pairs = new Set<BreakingPair>();
  let connections = 0;
  let next: Break | undefined;
  const server = createServer((client) => {
    connections += 1;
    const pair: BreakingPair = { client, upstream: pairFor(client, port), breaks: undefined };
    const { upstream } = pair;
    pairs.add(pair);
    client.on('close', () => pairs.delete(pair));
    let handshakeDone = false;
    client.on('data', (chunk) => {
      // 0x17: TLS application data, so a request, unless it is the end of the handshake.
      const isRequest = handshakeDone && chunk[0] === 0x17;
      if (chunk[0] === 0x14 || chunk[0] === 0x17) handshakeDone = true;
      if (isRequest && next !== undefined) {
        pair.breaks = next;
        next = undefined;
      }
      if (isRequest && pair.breaks === 'unseen') client.resetAndDestroy();
      else upstream.write(chunk);
    });
    upstream.on('data', (chunk) => {
      if (pair.breaks === 'seen' && chunk[0] === 0x17) client.resetAndDestroy();
      else client.write(chunk);
    });
  });
  return {
    ...(await listenOnLoopback(server)),
    get connections() {
      return connections;
    },
    breakOpen(kind) {
      for (const pair of pairs) pair.breaks = kind;
    },
    resetAll() {
      resetPairs(pairs);
    },
    breakNext(kind) {
      next = kind;
    },
  };
}
