import { once } from 'node:events';
import { connect as connectTcp } from 'node:net';
import { afterEach, describe, expect, test } from '@jest/globals';
import { call } from '../../support/client-call.ts';
import { closing } from '../../support/closing.ts';
import { openScene } from '../../support/scene.ts';
import { until } from '../../support/until.ts';
import { codeOf, connect, useRunning } from '../../support/wire.ts';

const brief = { headersTimeout: '300ms', headerSize: '2KiB' };
const running = useRunning(() => openScene({ top: { listen: { port: 0, limits: brief } } }));
const few = { connections: 30, connectionsPerAddress: 10 };
const trustedProxies = ['127.0.9.1'];
const limited = useRunning(() => openScene({ top: { listen: { port: 0, limits: few, trustedProxies } } }));
const REFUSED = 'digest_gateway_connections_refused_total';

/** A client that sends a byte of a head that never ends, time and again. */
async function slowloris() {
  const client = await connect(running().gateway.port);
  await client.send('GET / HTTP/1.1\r\nHost: x\r\nX-Slow: ');
  const drip = setInterval(() => void client.send('a'), 20);
  closing.push(() => clearInterval(drip));
  return client;
}

describe('a head that does not end', () => {
  test('gets a response and closes the connection, while others are served', async () => {
    const slow = await Promise.all(Array.from({ length: 8 }, slowloris));
    expect((await call(running().gateway)).status).toBe(200);
    for (const client of slow) {
      const answer = await client.answer();
      expect([answer.status, codeOf(answer)]).toEqual([408, 'request-timeout']);
      await client.end();
    }
    expect((await call(running().gateway)).status).toBe(200);
  });

  test('nor begin closes the connection', async () => {
    const client = await connect(running().gateway.port);
    expect((await client.answer()).status).toBe(408);
    await client.end();
  });

  test('has no more time after a response on the same connection', async () => {
    const client = await connect(running().gateway.port);
    await client.send('GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n');
    await client.answer();
    await client.send('GET / HTTP/1.1\r\nHost: ');
    expect((await client.answer()).status).toBe(408);
    await client.end();
  });
});

test('a head that is too large is refused, the largest allowed one is served', async () => {
  const { gateway } = running();
  const filled = (length: number) => ({ headers: { 'X-Fill': 'a'.repeat(length) } });
  expect((await call(gateway, filled(1_500))).status).toBe(200);
  expect(await call(gateway, filled(2_048))).toMatchObject({
    status: 431,
    code: 'headers-too-large',
    detail: expect.stringContaining('2048'),
  });
  expect(await call(gateway, { target: `/${'a'.repeat(2_048)}` })).toMatchObject({
    status: 414,
    code: 'target-too-long',
    detail: expect.stringContaining('2048'),
  });
});

describe('connections', () => {
  const sockets: ReturnType<typeof connectTcp>[] = [];
  afterEach(async () => {
    const open = sockets.splice(0).filter(({ closed }) => !closed);
    await Promise.all(open.map((socket) => once(socket.destroy(), 'close')));
    const { gateway } = limited();
    await until(
      async () => (await call(gateway, { from: '127.0.5.1' }).catch(() => undefined))?.status === 200,
    );
  });

  /** Opens so many; resolves to how many of them the gateway has closed at once. */
  async function closedOf(count: number, localAddress: string): Promise<number> {
    const { gateway } = limited();
    const before = await gateway.metric(REFUSED);
    let closed = 0;
    for (let index = 0; index < count; index += 1) {
      const socket = connectTcp({ host: '127.0.0.1', port: gateway.port, localAddress });
      sockets.push(socket);
      socket.on('error', () => undefined);
      socket.resume().once('close', () => {
        closed += 1;
      });
      await once(socket, 'connect');
    }
    const refused = (await gateway.metric(REFUSED)) - before;
    await until(() => closed >= refused);
    return refused;
  }

  test('of one address are limited, and those of others are not', async () => {
    expect(await closedOf(15, '127.0.5.7')).toBe(5);
    expect((await call(limited().gateway, { from: '127.0.5.8' })).status).toBe(200);
    await expect(call(limited().gateway, { from: '127.0.5.7' })).rejects.toThrow();
    expect(await limited().gateway.metric(REFUSED, { limit: 'address' })).toBeGreaterThanOrEqual(6);
  });

  test('of an address are counted until they close', async () => {
    expect(await closedOf(10, '127.0.5.7')).toBe(0);
    const [one] = sockets;
    one?.destroy();
    await until(
      async () =>
        (await call(limited().gateway, { from: '127.0.5.7' }).catch(() => undefined))?.status === 200,
    );
  });

  test('of a trusted proxy are limited by the total only', async () => {
    expect(await closedOf(20, '127.0.9.1')).toBe(0);
    expect(await closedOf(15, '127.0.9.1')).toBe(5);
    expect(await limited().gateway.metric(REFUSED, { limit: 'total' })).toBe(5);
  });
});
