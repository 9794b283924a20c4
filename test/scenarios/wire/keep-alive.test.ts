import { expect, test } from '@jest/globals';
import { useWire } from '../../support/wire.ts';

const REQUEST = 'GET /status/204 HTTP/1.1\r\nHost: x\r\n\r\n';
const KEPT_MS = 100;
/** Node keeps a connection so much longer than it says. */
const NODE_ADDS_MS = 1_000;

const wire = useWire({
  behaviour: { testPaths: true },
  top: { listen: { port: 0, limits: { keepAliveTimeout: `${KEPT_MS}ms` } } },
});

/** Keeps the process, and so the gateway, from doing anything. */
function standStill(ms: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
}

test('serves a request that arrives while a busy gateway lets the keep-alive time pass', async () => {
  const client = await wire.connect();
  await client.send(REQUEST);
  expect((await client.answer()).status).toBe(204);
  void client.send(REQUEST);
  standStill(KEPT_MS + NODE_ADDS_MS + 500);
  expect((await client.answer()).status).toBe(204);
});

test('closes a connection on which no request comes', async () => {
  const client = await wire.connect();
  await client.send(REQUEST);
  expect((await client.answer()).status).toBe(204);
  expect((await client.end()).length).toBe(0);
});
