import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import { duplexPair } from 'node:stream';
import { connect as connectTls } from 'node:tls';
import { expect, test } from '@jest/globals';
import { call } from '../../support/client-call.ts';
import { closing } from '../../support/closing.ts';
import { startHaProxy } from '../../support/haproxy.ts';
import { createTestAuthority, writeTlsFiles } from '../../support/issued-certificates.ts';
import { listenOnLoopback } from '../../support/loopback-server.ts';
import { binaryHeader, ipv4, withChecksum } from '../../support/proxy-headers.ts';
import { authors, openScene } from '../../support/scene.ts';
import { until } from '../../support/until.ts';
import { useRunning } from '../../support/wire.ts';

const REFUSED = 'digest_gateway_proxy_headers_refused_total';
const allow = [{ deployment: 'submissions' }];
const clients = [{ id: 'known', identify: { addresses: ['192.0.2.7', '2001:db8::7'] }, allow }];
const limits = { headersTimeout: '500ms', connectionsPerAddress: 3 };
const listen = { port: 0, proxyProtocol: ['127.0.0.1'], limits };
const log = { requests: true };
const running = useRunning(() => openScene({ top: { anonymous: false, clients, listen, log } }));

const REQUEST = `GET ${authors} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n`;
const V1 = 'PROXY TCP4 192.0.2.7 10.0.0.1 4711 80\r\n';
const V2 = withChecksum({ family: 0x11, rest: [ipv4('192.0.2.7')] });

/** Sends the parts, each when the one before has left; resolves to all that comes back. */
async function exchange(parts: readonly (string | Buffer)[], localAddress = '127.0.0.1'): Promise<string> {
  const socket = connect({ port: running().gateway.port, host: '127.0.0.1', localAddress });
  // A reset says as much as an end.
  socket.on('error', () => socket.destroy());
  let received = '';
  socket.on('data', (chunk) => {
    received += chunk.toString('latin1');
  });
  const closed = once(socket, 'close');
  await once(socket, 'connect');
  socket.setNoDelay(true);
  for (const part of parts) await new Promise((resolve) => socket.write(part, resolve));
  await closed;
  return received;
}

/** The first bytes of a TLS client. */
async function clientHello(): Promise<Buffer> {
  const [near, far] = duplexPair();
  const client = connectTls({ socket: near });
  // It gets no response.
  client.on('error', () => client.destroy());
  const [hello] = await once(far, 'data');
  client.destroy();
  return hello;
}

const statusOf = (response: string): string => response.slice(9, 12);

test.each([
  ['of version 1', [V1, REQUEST]],
  ['of version 1 over IPv6', ['PROXY TCP6 2001:db8::7 ::1 1 2\r\n', REQUEST]],
  ['of version 2', [V2, REQUEST]],
  ['and the request at once', [V1 + REQUEST]],
  ['byte by byte', [...V2].map((byte) => Buffer.from([byte])).concat(Buffer.from(REQUEST))],
])('the client has the address of a header %s', async (_title, parts) => {
  expect(statusOf(await exchange(parts))).toBe('200');
});

test('logs and refusals name the address of the header', async () => {
  const response = await exchange(['PROXY TCP4 192.0.2.8 10.0.0.1 1 2\r\n', REQUEST]);
  expect(statusOf(response)).toBe('401');
  expect(response).toContain('the address 192.0.2.8');
  const { logged } = running().gateway;
  await until(() => logged.some(({ address }) => address === '192.0.2.8'));
});

test.each([
  ['https://x', '200'],
  ['http://x', '200'],
  ['https://x:8443', '403'],
  ['https://y', '403'],
])('a page at %s, of which the proxy may have ended TLS, gets %s', async (origin, status) => {
  const fields = `Host: x\r\nOrigin: ${origin}\r\nSec-Fetch-Site: same-origin\r\nConnection: close`;
  const response = await exchange([V1, `POST /echo HTTP/1.1\r\n${fields}\r\nContent-Length: 0\r\n\r\n`]);
  expect(statusOf(response)).toBe(status);
});

test('a connection of the proxy itself has the address of the proxy', async () => {
  for (const header of ['PROXY UNKNOWN\r\n', binaryHeader({ command: 0x20, family: 0 })]) {
    expect(await exchange([header, REQUEST])).toContain('the address 127.0.0.1');
  }
});

test.each([
  ['malformed', [REQUEST]],
  ['unsupported', [binaryHeader({ family: 0x31, rest: [Buffer.alloc(216)] })]],
  ['timeout', ['PROXY TCP4 192.0']],
])('a connection without a valid header is closed, counted and logged: %s', async (reason, parts) => {
  const { gateway } = running();
  const before = await gateway.metric(REFUSED, { reason });
  expect(await exchange(parts)).toBe('');
  await until(async () => (await gateway.metric(REFUSED, { reason })) === before + 1);
  expect(gateway.logged).toContainEqual(
    expect.objectContaining({
      level: 'warn',
      proxy: '127.0.0.1',
      reason,
      msg: 'connection without a valid PROXY header closed',
    }),
  );
});

test('a connection that closes within its header is counted; one without a byte is a check of the port', async () => {
  const { gateway } = running();
  const counted = () => gateway.metric(REFUSED);
  const before = await counted();
  const hangUp = async (bytes: string) => {
    const socket = connect(gateway.port, '127.0.0.1');
    await once(socket, 'connect');
    socket.end(bytes).resume();
    await once(socket, 'close');
  };
  await hangUp('');
  await hangUp('PROXY');
  await until(async () => (await gateway.metric(REFUSED, { reason: 'incomplete' })) > 0);
  expect(await counted()).toBe(before + 1);
});

test('from another network a header is a malformed request', async () => {
  expect(statusOf(await exchange([V1 + REQUEST], '127.0.0.2'))).toBe('400');
});

test('connections are limited by the address of the header', async () => {
  const { gateway } = running();
  const open = async (address: string) => {
    const socket = connect(gateway.port, '127.0.0.1');
    closing.push(() => socket.destroy());
    socket.on('error', () => {});
    await once(socket, 'connect');
    socket.write(`PROXY TCP4 ${address} 10.0.0.1 1 2\r\n`);
    return socket;
  };
  for (let count = 0; count < 3; count += 1) await open('192.0.2.20');
  const refused = () => gateway.metric('digest_gateway_connections_refused_total', { limit: 'address' });
  const before = await refused();
  const fourth = await open('192.0.2.20');
  fourth.resume();
  await once(fourth, 'close');
  expect(await refused()).toBe(before + 1);
  // Of another client behind the same proxy.
  expect(statusOf(await exchange([V1, REQUEST]))).toBe('200');
});

test('addresses of one /64 have half of the connections together', async () => {
  const few = { connections: 8, connectionsPerAddress: 3, headersTimeout: '1h' };
  await using scene = await openScene({
    top: { anonymous: false, clients, listen: { ...listen, limits: few } },
  });
  const { gateway } = scene;
  const open = async (address: string, request = '') => {
    const socket = connect(gateway.port, '127.0.0.1');
    closing.push(() => socket.destroy());
    await once(socket, 'connect');
    socket.write(`PROXY TCP6 ${address} ::1 1 2\r\n${request}`);
    return socket;
  };
  const sockets = [];
  for (let host = 1; host <= 5; host += 1) sockets.push(await open(`2001:db8:0:1::${host}`));
  await Promise.race(sockets.map((socket) => once(socket.on('error', () => {}).resume(), 'close')));
  const refused = () => gateway.metric('digest_gateway_connections_refused_total', { limit: 'address' });
  expect(await refused()).toBe(1);
  const other = await open('2001:db8::7', REQUEST);
  const [head] = await once(other.setEncoding('latin1'), 'data');
  expect(statusOf(head)).toBe('200');
  expect(await refused()).toBe(1);
  for (const socket of sockets) socket.destroy();
});

test('the header is in front of TLS, in a packet of its own or with the handshake', async () => {
  const authority = await createTestAuthority();
  const files = await writeTlsFiles(await authority.server(), authority.ca);
  closing.push(() => files.remove());
  const { certFile, keyFile } = files.section;
  const tls = { certFile, keyFile };
  await using scene = await openScene({
    top: { anonymous: false, clients, listen: { ...listen, tls } },
  });
  const { port } = scene.gateway;
  const socket = connect(port, '127.0.0.1');
  await once(socket, 'connect');
  socket.write(V2);
  const secured = connectTls({ socket, ca: authority.ca, servername: 'localhost' });
  await once(secured, 'secureConnect');
  secured.write(REQUEST);
  let received = '';
  for await (const chunk of secured.setEncoding('latin1')) received += chunk;
  expect(statusOf(received)).toBe('200');
  const relay = await listenOnLoopback(
    createServer((client) => {
      const upstream = connect(port, '127.0.0.1');
      for (const each of [client, upstream]) each.on('error', () => each.destroy());
      client.once('data', (hello) => {
        upstream.cork();
        upstream.write(V2);
        upstream.write(hello);
        upstream.uncork();
        client.pipe(upstream);
      });
      upstream.pipe(client);
    }),
  );
  closing.push(() => relay.close());
  const answer = await call({ origin: `https://localhost:${relay.port}` }, { tls: { ca: authority.ca } });
  expect(answer.status).toBe(200);
});

test('with TLS, connections from one port of the proxy to two addresses keep their clients', async () => {
  const authority = await createTestAuthority();
  const files = await writeTlsFiles(await authority.server(), authority.ca);
  closing.push(() => files.remove());
  const { certFile, keyFile } = files.section;
  const everywhere = { ...listen, address: '0.0.0.0', tls: { certFile, keyFile } };
  await using scene = await openScene({ top: { anonymous: false, clients, listen: everywhere } });
  const { port } = scene.gateway;
  const open = async (host: string, client: string, localPort?: number) => {
    const socket = connect({ host, port, localAddress: '127.0.0.1', ...(localPort && { localPort }) });
    socket.on('error', () => socket.destroy());
    closing.push(() => socket.destroy());
    await once(socket, 'connect');
    await new Promise((resolve) => socket.write(`PROXY TCP4 ${client} 10.0.0.1 1 2\r\n`, resolve));
    return socket;
  };
  const stranger = await open('127.0.0.1', '192.0.2.8');
  // Of the known client, in the middle of its handshake.
  const known = await open('127.0.0.2', '192.0.2.7', stranger.localPort);
  known.write(await clientHello());
  await once(known, 'data');
  const secured = connectTls({ socket: stranger, ca: authority.ca, servername: 'localhost' });
  await once(secured, 'secureConnect');
  secured.write(REQUEST);
  let received = '';
  for await (const chunk of secured.setEncoding('latin1')) received += chunk;
  expect(received).toContain('the address 192.0.2.8');
});

test('a connection that waits for its header does not hold up the end', async () => {
  const patient = { ...listen, limits: { headersTimeout: '1h' } };
  await using scene = await openScene({ top: { listen: patient, drain: { timeout: '1h' } } });
  const { gateway } = scene;
  const socket = connect(gateway.port, '127.0.0.1');
  socket.on('error', () => socket.destroy());
  socket.write('PROXY');
  await once(socket, 'connect');
  // The gateway accepts connections in their order.
  const second = connect(gateway.port, '127.0.0.1');
  second.write(V1 + REQUEST);
  await once(second.resume(), 'close');
  await expect(gateway.close()).resolves.toBeUndefined();
});

test('HAProxy is understood in both versions', async () => {
  const own = [{ id: 'own', identify: { addresses: ['127.0.5.7'] }, allow }];
  await using scene = await openScene({ top: { anonymous: false, clients: own, listen } });
  const { port, control } = scene.gateway;
  for (const way of ['send-proxy', 'send-proxy-v2']) {
    const balancer = await startHaProxy([{ name: 'g', port, controlPort: Number(new URL(control).port) }], {
      defaults: ['retries 0', 'timeout server 60s'],
      backend: [`default-server ${way}`],
    });
    closing.push(() => balancer.close());
    await until(async () => (await balancer.statusOf('g')) === 'UP');
    expect((await call(balancer, { from: '127.0.5.7' })).status).toBe(200);
    expect((await call(balancer, { from: '127.0.5.8' })).status).toBe(401);
  }
});
