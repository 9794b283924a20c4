import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import { expect, test } from '@jest/globals';
import { call } from '../support/client-call.ts';
import { closing } from '../support/closing.ts';
import { startGateway } from '../support/gateway.ts';
import { startUpstream } from '../support/scripted-upstream.ts';
import { until } from '../support/until.ts';

const CONNECTIONS = 4;
/** More than all buffers on the way of a response. */
const LARGE = 64 * 2 ** 20;
const CLIENTS = { hog: '127.0.0.2', other: '127.0.0.3' };
const CHALLENGE = 'Digest realm="r", nonce="n", qop="auth"';

// The gateway waits for the requests under way, so their clients go first.

/** A gateway with two clients, whose upstream reads bodies to their end and sends a large response to /large. */
async function start() {
  const upstream = await startUpstream((req, res) => {
    if (req.headers.authorization === undefined) {
      res.writeHead(401, { 'www-authenticate': CHALLENGE }).end();
      return;
    }
    req.on('error', () => {}).resume();
    req.on('end', () => res.end(req.url === '/large' ? Buffer.alloc(LARGE) : 'ok'));
  });
  closing.push(() => upstream.close());
  const settings = {
    connections: CONNECTIONS,
    tls: { allowPlaintext: true },
    body: { replayUpTo: '1KiB' },
    // Long before the end of slow exchanges, others that got no connection would be refused.
    timeouts: { response: '20s', idle: '120s', total: '10m' },
  };
  const gateway = await startGateway(
    { up: { origin: upstream.origin, settings } },
    {
      anonymous: false,
      clients: Object.entries(CLIENTS).map(([id, address]) => ({
        id,
        identify: { addresses: [`${address}/32`] },
        allow: [{ deployment: 'up', operations: ['*'] }],
      })),
    },
  );
  closing.push(() => gateway.close());
  const other = async () => (await call(gateway, { from: CLIENTS.other, target: '/other' })).status;
  expect(await other()).toBe(200);
  return {
    gateway,
    other,
    running: () => gateway.metric('digest_gateway_upstream_connections', { state: 'running' }),
    endedOf: (code: string) => gateway.metric('digest_gateway_requests_total', { client: 'hog', code }),
    /** Sends this as the hog, and does not read what comes. */
    hog: async (...parts: (string | Buffer)[]) => {
      const socket = connect({ port: gateway.port, host: '127.0.0.1', localAddress: CLIENTS.hog });
      closing.push(() => socket.destroy());
      socket.on('error', () => {});
      await once(socket, 'connect');
      socket.pause();
      for (const part of parts) socket.write(part);
      return socket;
    },
  };
}

test('a large body that does not begin holds no connection, and passes whole when it comes', async () => {
  const { gateway, other, running, hog } = await start();
  const length = 1_000_000;
  const head = `POST /upload HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: ${length}\r\n\r\n`;
  const [socket] = await Promise.all(Array.from({ length: CONNECTIONS }, () => hog(head)));
  await until(async () => (await gateway.metric('digest_gateway_requests_in_flight')) === CONNECTIONS);
  expect(await other()).toBe(200);
  expect(await running()).toBe(0);
  socket?.write(Buffer.alloc(length));
  expect(await text(socket as Socket)).toMatch(/^HTTP\/1.1 200 .*ok$/s);
});

test.each([
  ['uploads', 'POST /upload HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n', Buffer.alloc(2000)],
  ['responses that it does not read', 'GET /large HTTP/1.1\r\nHost: x\r\n\r\n', ''],
])(
  'a client with slow %s on all connections keeps half of them while others want some',
  async (_what, head, body) => {
    const { hog, other, running, endedOf } = await start();
    for (let count = 0; count < CONNECTIONS; count += 1) await hog(head, body);
    await until(async () => (await running()) === CONNECTIONS);
    const served = await Promise.all(Array.from({ length: 12 }, other));
    expect(new Set(served)).toEqual(new Set([200]));
    const ended = await endedOf('overloaded');
    expect(ended).toBeGreaterThan(0);
    expect(ended).toBeLessThanOrEqual(CONNECTIONS / 2);
    expect(await running()).toBe(CONNECTIONS - ended);
  },
);
