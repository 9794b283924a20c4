import { once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import { describe, expect, test } from '@jest/globals';
import { closedAtEnd, closing } from '../../support/closing.ts';
import { type RunningGateway, startGateway } from '../../support/gateway.ts';
import { createTestAuthority, writeTlsFiles } from '../../support/issued-certificates.ts';
import type { RawClient } from '../../support/raw-client.ts';
import { startUpstream } from '../../support/scripted-upstream.ts';
import { until } from '../../support/until.ts';
import { connect, useRunning } from '../../support/wire.ts';

const IN_FLIGHT = 'digest_gateway_requests_in_flight';
const REQUESTS = 'digest_gateway_requests_total';
const GET = (path: string): string => `GET ${path} HTTP/1.1\r\nHost: x\r\n\r\n`;
/** More than the buffers of the kernel between two sockets hold. */
const LARGE = 64 * 2 ** 20;
/** Less than the gateway keeps of one response, so that the upstream is done with it at once. */
const SMALL = 32 * 1024;
const block = Buffer.alloc(2 ** 16);
let requests = 0;

async function respond(req: IncomingMessage, res: ServerResponse): Promise<void> {
  if (req.headers.authorization === undefined) {
    res.writeHead(401, { 'www-authenticate': 'Digest realm="r", nonce="n"' }).end();
    return;
  }
  requests += 1;
  if (req.url !== '/large') {
    res.end(block.subarray(0, req.url === '/small' ? SMALL : 1));
    return;
  }
  res.writeHead(200, { 'content-length': LARGE });
  const closed = once(res, 'close');
  for (let sent = 0; sent < LARGE && !res.destroyed; sent += block.length) {
    if (!res.write(block)) await Promise.race([new Promise((resolve) => res.once('drain', resolve)), closed]);
  }
  res.end();
}

const upstream = useRunning(() => startUpstream((req, res) => void respond(req, res)));

async function start(idle: string, more: Record<string, unknown> = {}, top: Record<string, unknown> = {}) {
  const gateway = await startSilent(idle, more, top);
  await ask(gateway);
  requests = 0;
  return gateway;
}

/** Does the same without a first request. */
async function startSilent(idle: string, more: Record<string, unknown>, top: Record<string, unknown>) {
  const settings = { tls: { allowPlaintext: true }, timeouts: { idle }, ...more };
  return closedAtEnd(startGateway({ upstream: { origin: upstream().origin, settings } }, top));
}

/** The status of one request on a connection of its own. */
async function ask({ origin }: RunningGateway): Promise<number> {
  const response = await fetch(origin, { headers: { connection: 'close' } });
  await response.text();
  return response.status;
}

/** A client that sends this and reads nothing. */
async function unreading(gateway: RunningGateway, bytes: string): Promise<RawClient> {
  const client = await connect(gateway.port);
  client.socket.removeAllListeners('data').pause();
  await client.send(bytes);
  return client;
}

/** Resolves when the gateway has ended the connection. */
async function broken(client: RawClient): Promise<void> {
  client.socket.resume();
  await client.end();
}

const timedOut = (gateway: RunningGateway): Promise<number> =>
  gateway.metric(REQUESTS, { code: 'client-timeout', status: '499' });

describe('a client that reads nothing for timeouts.idle loses its connection', () => {
  test('in the middle of a large response', async () => {
    const gateway = await start('300ms');
    const client = await unreading(gateway, GET('/large'));
    await until(async () => (await timedOut(gateway)) === 1);
    await broken(client);
    expect(await gateway.metric(IN_FLIGHT)).toBe(0);
  });

  test('when the upstream is done with each of its pipelined requests', async () => {
    const gateway = await start('500ms');
    const client = await unreading(gateway, GET('/small').repeat(1_500));
    await until(async () => (await timedOut(gateway)) === 1);
    await broken(client);
    expect(await gateway.metric(IN_FLIGHT)).toBe(0);
    expect(requests).toBeLessThan(1_500);
    // Requests that were never read from the connection are not counted.
    expect(await gateway.metric(REQUESTS)).toBe(requests + 1);
  });

  test('when it goes on sending', async () => {
    const gateway = await start('300ms');
    const client = await unreading(gateway, GET('/large'));
    const sending = setInterval(() => void client.send('G'), 20);
    try {
      await until(async () => (await timedOut(gateway)) === 1);
    } finally {
      clearInterval(sending);
    }
    await broken(client);
  });

  test('when the gateway itself answers', async () => {
    const limits = { rate: '1/h', burst: 1 };
    const listen = { port: 0, limits: { connectionsPerAddress: 1 } };
    const gateway = await start('300ms', { limits }, { listen });
    const refused = (): Promise<number> => gateway.metric(REQUESTS, { code: 'rate-limited' });
    await unreading(gateway, GET('/small').repeat(40_000));
    await until(async () => (await refused()) > 0);
    // The address has a place for a connection again.
    await until(async () => (await ask(gateway).catch(() => 0)) === 429);
    expect(await refused()).toBeLessThan(40_000);
  });
});

test('a client that reads slowly gets everything', async () => {
  const gateway = await start('1s');
  const client = await unreading(gateway, GET('/large'));
  let received = 0;
  client.socket.on('readable', () => undefined);
  const begun = performance.now();
  // Never a second without a read, for longer than timeouts.idle in all.
  while (performance.now() - begun < 2_500) {
    received += client.socket.read()?.length ?? 0;
    await delay(20);
  }
  client.socket.removeAllListeners('readable').on('data', (chunk: Buffer) => {
    received += chunk.length;
  });
  client.socket.resume();
  await until(() => received > LARGE);
  expect(await timedOut(gateway)).toBe(0);
});

test('a response counts as in flight, and keeps its permit, until the client has read it', async () => {
  const gateway = await start('30s', { limits: { concurrent: 1 } });
  const client = await unreading(gateway, GET('/small').repeat(1_500));
  // The upstream is done with every request that it got, and the client reads none of the rest.
  await until(async () => {
    const before = requests;
    await delay(200);
    return before > 0 && requests === before;
  });
  expect(await gateway.metric(IN_FLIGHT)).toBe(1);
  // Nor did one of its own find the place taken by the one before.
  expect(await gateway.metric(REQUESTS, { status: '429' })).toBe(0);
  expect(await ask(gateway)).toBe(429);
  client.close();
  await until(async () => (await gateway.metric(IN_FLIGHT)) === 0);
  expect(await ask(gateway)).toBe(200);
  expect(await gateway.metric(REQUESTS, { code: 'client-closed' })).toBe(1);
});

test('a client that keeps its side open after the last response holds no connection', async () => {
  const limits = { connectionsPerAddress: 1 };
  const gateway = await startGateway(
    { upstream: { origin: upstream().origin, settings: { tls: { allowPlaintext: true } } } },
    { listen: { port: 0, limits } },
  );
  closing.push(() => gateway.close());
  for (let round = 0; round < 3; round += 1) {
    const client = await connect(gateway.port);
    await client.send('GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n');
    expect((await client.answer()).status).toBe(200);
    expect((await client.end()).toString()).toBe('');
  }
});

test('a request that arrived while the process was busy is not late', async () => {
  const headersTimeout = 3_000;
  const gateway = await start(
    '15s',
    {},
    { listen: { port: 0, limits: { headersTimeout: `${headersTimeout}ms` } } },
  );
  const client = await connect(gateway.port);
  // By its response the gateway has accepted the connection of the client as well.
  expect(await ask(gateway)).toBe(200);
  client.socket.write(GET('/small'));
  // The gateway runs in this process: it cannot read until after the deadline and the check for it.
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, headersTimeout + 1_100);
  expect((await client.answer()).status).toBe(200);
});

describe('a client loses its connection', () => {
  test('when it has connected over TLS and does not begin the handshake', async () => {
    const authority = await createTestAuthority();
    const files = await writeTlsFiles(await authority.server(), authority.ca);
    const limits = { headersTimeout: '300ms' };
    const gateway = await startSilent('30s', {}, { listen: { port: 0, limits, tls: files.section } });
    const silent = await connect(gateway.port);
    expect((await silent.end()).toString()).toBe('');
    await files.remove();
  });

  test('when it sends nothing but empty lines after a response', async () => {
    const limits = { keepAliveTimeout: '100ms' };
    const gateway = await start('30s', {}, { listen: { port: 0, limits } });
    const client = await connect(gateway.port);
    await client.send(GET('/small'));
    expect((await client.answer()).status).toBe(200);
    const sending = setInterval(() => void client.send('\r\n'), 20);
    try {
      expect((await client.end()).toString()).toBe('');
    } finally {
      clearInterval(sending);
    }
  });
});
