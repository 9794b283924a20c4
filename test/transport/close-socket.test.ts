import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { connect as connectTls, createServer as createTlsServer, type TLSSocket } from 'node:tls';
import { describe, expect, test } from '@jest/globals';
import { Cancellation } from '../../src/base/cancellation.ts';
import { GatewayError } from '../../src/base/errors.ts';
import { closeSocket } from '../../src/transport/connector.ts';
import { closing } from '../support/closing.ts';
import { createTestAuthority } from '../support/issued-certificates.ts';
import { listenOnLoopback } from '../support/loopback-server.ts';
import type { UpstreamConnection } from '../support/scripted-upstream.ts';
import { type ExchangeSceneOptions, useExchanges } from './exchanges.ts';

const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok';
const RECORD_HEADER = 5;
const [ALERT, APPLICATION_DATA] = [0x15, 0x17];

const scene = useExchanges();
const certificates = createTestAuthority().then(async (authority) => ({
  ca: authority.ca,
  pair: await authority.server(),
}));

/** Keeps the bytes of clients on their way to the upstream; resolves with them when the first connection has ended. */
function tap(): { through: (port: number) => Promise<number>; sent: Promise<Buffer> } {
  const { promise: sent, resolve } = Promise.withResolvers<Buffer>();
  const pass = (client: Socket, upstream: Socket): void => {
    const pieces: Buffer[] = [];
    client.on('data', (piece: Buffer) => pieces.push(piece));
    client.on('close', () => resolve(Buffer.concat(pieces)));
    closing.push(() => upstream.destroy());
    for (const socket of [client, upstream]) socket.on('error', () => socket.destroy());
    client.pipe(upstream).pipe(client);
  };
  const through = async (port: number): Promise<number> => {
    const server = createServer((client) => pass(client, connect(port, '127.0.0.1')));
    const relay = await listenOnLoopback(server);
    closing.push(() => relay[Symbol.asyncDispose]());
    return relay.port;
  };
  return { through, sent };
}

/** Types of the TLS records that are whole, in their order. TLS 1.2 shows them. */
function recordTypes(bytes: Buffer): number[] {
  const types: number[] = [];
  for (let at = 0; at + RECORD_HEADER <= bytes.length; ) {
    types.push(bytes[at] ?? 0);
    at += RECORD_HEADER + bytes.readUInt16BE(at + 3);
  }
  return types;
}

/** Answers every request. */
const answering = async (connection: UpstreamConnection): Promise<void> => {
  while ((await connection.request()) !== undefined) await connection.write(OK);
};

const over = (through: (port: number) => Promise<number>): ExchangeSceneOptions => ({
  through,
  maxVersion: 'TLSv1.2',
});

test('an idle connection ends with a closure alert', async () => {
  const { through, sent } = tap();
  const { send, connections } = await scene(answering, over(through));
  expect((await send()).kind).toBe('answered');
  connections.close();
  expect(recordTypes(await sent).slice(-2)).toEqual([APPLICATION_DATA, ALERT]);
});

test('a connection ends with a closure alert when its exchange is given up', async () => {
  const { through, sent } = tap();
  const came = Promise.withResolvers<void>();
  const { send } = await scene(async (connection) => {
    await connection.request();
    came.resolve();
    await connection.closed();
  }, over(through));
  const cancellation = new Cancellation();
  const outcome = send({ cancellation });
  await came.promise;
  cancellation.cancel(new GatewayError('client-closed', ''));
  expect((await outcome).kind).toBe('client-closed');
  expect(recordTypes(await sent).slice(-2)).toEqual([APPLICATION_DATA, ALERT]);
});

test('a connection that was made to check the upstream ends with a closure alert', async () => {
  const { through, sent } = tap();
  const { connections } = await scene(answering, over(through));
  await connections.connect();
  expect(recordTypes(await sent).at(-1)).toBe(ALERT);
});

describe('a connection', () => {
  /** A connection over TLS to a server that reads nothing after the handshake, and a way to stop what it sends. */
  async function open(): Promise<{ socket: TLSSocket; stall: () => void }> {
    const { pair, ca } = await certificates;
    const server = createTlsServer(pair, (accepted) => accepted.on('error', () => {}).pause());
    const { port, ...listening } = await listenOnLoopback(server);
    closing.push(() => listening[Symbol.asyncDispose]());
    let isStalled = false;
    const tcp = connect(port, '127.0.0.1').on('error', () => {});
    const wire = new Duplex({
      read: () => void tcp.resume(),
      write: (piece, _encoding, done) => void (isStalled || tcp.write(piece, done)),
      destroy: (error, done) => {
        tcp.destroy();
        done(error);
      },
    });
    tcp.on('data', (piece) => void (wire.push(piece) || tcp.pause()));
    const socket = connectTls({ socket: wire, ca, servername: 'localhost' });
    await once(socket, 'secureConnect');
    const stall = (): void => {
      isStalled = true;
    };
    return { socket, stall };
  }

  test('that has bytes to send ends at once', async () => {
    const { socket, stall } = await open();
    stall();
    socket.write('x');
    closeSocket(socket);
    expect(socket.destroyed).toBe(true);
  });

  test('whose closure alert does not leave ends nevertheless', async () => {
    const { socket, stall } = await open();
    stall();
    closeSocket(socket);
    expect(socket.destroyed).toBe(false);
    await once(socket, 'close');
  });
});
