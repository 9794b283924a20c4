import { execFileSync } from 'node:child_process';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { Readable } from 'node:stream';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { rulesOf } from '../policy/world.ts';
import { RawClient } from '../support/raw-client.ts';
import { until } from '../support/until.ts';
import { type RunningControl, startControl } from './console-source.ts';

const LONG = 60_000;
/** More than the buffers of a connection of loopback hold. */
const METRICS_BYTES = 12 * 2 ** 20;
const SCRAPE = 'GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n';

let control: RunningControl | undefined;
let sockets: Socket[];
beforeEach(() => {
  sockets = [];
});
afterEach(async () => {
  for (const socket of sockets) socket.destroy();
  await control?.close();
});

/** The port of a control plane whose metrics are large; `scraped` is called for each scrape. */
async function start(timeouts: { headers?: number; idle?: number; response?: number }, scraped = () => {}) {
  control = await startControl({
    scrape: async () => {
      scraped();
      return { contentType: 'text/plain', pieces: Readable.from(['x'.repeat(METRICS_BYTES)]) };
    },
    timeouts: { headers: LONG, idle: LONG, response: LONG, ...timeouts },
  });
  return Number(new URL(control.origin).port);
}

/** Sends a text on a connection of its own and reads nothing. Resolves to the other end of it, in the control plane. */
async function sendOnly(port: number, text: string): Promise<Socket> {
  const opened: Socket[] = [];
  const onOpen = (message: unknown): void => void opened.push((message as { socket: Socket }).socket);
  subscribe('net.server.socket', onOpen);
  try {
    const socket = connect({ port, host: '127.0.0.1' }).pause();
    sockets.push(socket);
    socket.on('error', () => undefined);
    await once(socket, 'connect');
    const isOther = ({ remotePort }: Socket) => remotePort === socket.localPort;
    await until(() => opened.some(isOther));
    socket.write(text);
    return opened.find(isOther) as Socket;
  } finally {
    unsubscribe('net.server.socket', onOpen);
  }
}

async function closed(socket: Socket): Promise<void> {
  if (!socket.closed) await once(socket, 'close');
}

test.each([
  ['sends nothing', ''],
  ['stops within its headers', 'GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n'],
])('closes a connection that %s', async (_what, text) => {
  const client = await RawClient.open(await start({ headers: 100 }));
  sockets.push(client.socket);
  if (text !== '') await client.send(text);
  expect((await client.end()).toString('latin1')).toMatch(/^HTTP\/1\.1 408 /);
});

test.each(['idle', 'response'])(
  'closes a connection whose reader of metrics stops, by timeouts.%s',
  async (name) => {
    const socket = await sendOnly(await start({ [name]: 300 }), SCRAPE);
    await closed(socket);
  },
);

test('makes no more than eight responses for a connection that pipelines and does not read', async () => {
  let scrapes = 0;
  const port = await start({}, () => {
    scrapes += 1;
  });
  await closed(await sendOnly(port, SCRAPE.repeat(1_000)));
  expect((await fetch(`http://127.0.0.1:${port}/livez`)).status).toBe(200);
  expect(scrapes).toBe(8);
});

test('refuses scrapes while sixteen are not read, and serves them again afterwards', async () => {
  let scrapes = 0;
  const port = await start({}, () => {
    scrapes += 1;
  });
  for (let open = 0; open < 16; open += 1) await sendOnly(port, SCRAPE);
  await until(() => scrapes === 16);
  const refused = await fetch(`http://127.0.0.1:${port}/metrics`);
  expect([refused.status, refused.headers.get('retry-after')]).toEqual([503, '30']);
  expect(await refused.text()).toBe('Too many scrapes at once. Retry later.\n');
  expect((await fetch(`http://127.0.0.1:${port}/livez`)).status).toBe(200);
  for (const socket of sockets) socket.destroy();
  await until(async () => {
    const answer = await fetch(`http://127.0.0.1:${port}/metrics`);
    await answer.arrayBuffer();
    return answer.status === 200;
  });
});

test('refuses downloads of the description while sixteen are not read, and makes its text once', async () => {
  const rules = rulesOf('open');
  let made = 0;
  const offer = {
    version: 'x'.repeat(METRICS_BYTES),
    listen: [],
    get deployments() {
      made += 1;
      return [{ rules, host: undefined }];
    },
  };
  control = await startControl({ offer: () => offer });
  const port = Number(new URL(control.origin).port);
  const request = 'GET /openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n';
  for (let open = 0; open < 4; open += 1) await sendOnly(port, request.repeat(4));
  await until(async () => {
    const answer = await fetch(`http://127.0.0.1:${port}/openapi.json`);
    await answer.arrayBuffer();
    return answer.status === 503;
  });
  expect(made).toBe(1);
});

test('a scrape that fails after its beginning is cut off, and its error is logged', async () => {
  const errors: unknown[] = [];
  const failing = async function* () {
    yield 'x'.repeat(METRICS_BYTES);
    throw new TypeError('no such metric');
  };
  control = await startControl({
    scrape: async () => ({ contentType: 'text/plain', pieces: failing() }),
    onError: (error) => errors.push(error),
  });
  const answer = await fetch(`${control.origin}/metrics`);
  await expect(answer.text()).rejects.toThrow('terminated');
  expect(errors).toEqual([new TypeError('no such metric')]);
});

test('one address does not take all connections', async () => {
  const port = await start({});
  const open = async (localAddress: string): Promise<Socket> => {
    const socket = connect({ port, host: '127.0.0.1', localAddress });
    sockets.push(socket);
    socket.on('error', () => undefined);
    await once(socket, 'connect');
    return socket;
  };
  const isServed = async (localAddress: string): Promise<boolean> => {
    const socket = await open(localAddress);
    let received = '';
    socket.on('data', (chunk) => {
      received += String(chunk);
    });
    socket.write('GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n');
    await new Promise((resolve) => socket.once('close', resolve));
    return received.startsWith('HTTP/1.1 200 ');
  };
  const idle = await Promise.all(Array.from({ length: 250 }, () => open('127.0.0.2')));
  expect([await isServed('127.0.0.2'), await isServed('127.0.0.3')]).toEqual([false, true]);
  idle[0]?.destroy();
  await until(() => isServed('127.0.0.2'));
});

test('a console that is open when the gateway ends gets no more, though a tick is under way', async () => {
  const { promise, resolve } = Promise.withResolvers<object>();
  let asked = 0;
  const state = () => {
    asked += 1;
    return promise;
  };
  control = await startControl({ console: { state } });
  const { body, headers } = await fetch(`${control.origin}/api/events`);
  expect(headers.get('x-accel-buffering')).toBe('no');
  await until(() => asked > 0);
  const ended = control.close();
  resolve({});
  const text = await new Response(body).text();
  await ended;
  expect(text.match(/^event: .*/gm)).toEqual(['event: audit']);
});

test('a client that resets its connection before it is accepted is not served: it has no address any more', async () => {
  let scrapes = 0;
  const port = await start({}, () => {
    scrapes += 1;
  });
  const reset = `
    const client = require('node:net').connect(${port}, '127.0.0.1');
    client.write(${JSON.stringify(SCRAPE)}, () => client.resetAndDestroy());`;
  // Nothing is accepted meanwhile.
  execFileSync(process.execPath, ['-e', reset]);
  expect((await fetch(`http://127.0.0.1:${port}/livez`)).status).toBe(200);
  expect(scrapes).toBe(0);
});
