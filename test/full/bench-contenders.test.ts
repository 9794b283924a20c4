import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { CONTENDERS, startContender } from '../bench/compare/contenders.ts';
import { LoadConnections } from '../bench/compare/load.ts';
import { cpuOf } from '../bench/compare/process-tree.ts';
import { seededRandom } from '../bench/compare/statistics.ts';
import { type BenchUpstream, startBenchUpstream } from '../bench/compare/upstream.ts';

const CONNECTIONS = 3;
let upstream: BenchUpstream;
beforeAll(async () => {
  upstream = await startBenchUpstream();
});
afterAll(() => upstream.close());

/** Contenders from the packages of the project and of its tests; install-peers.sh brings the others. */
const CERTAIN = ['gateway', 'express-http-proxy', 'haproxy', 'node-undici', 'node-undici-held', 'node-hello'];

test.each(CONTENDERS)('$name serves both documents, if it is installed', async (contender) => {
  const installed = (await contender.version()) !== undefined;
  if (CERTAIN.includes(contender.name)) expect(installed).toBe(true);
  if (!installed) return;
  const running = await startContender(contender, upstream, undefined);
  try {
    for (const document of ['2KB', '256KB'] as const) {
      const load = await LoadConnections.open(running.question(document), CONNECTIONS);
      expect(await load.saturate(1)).toBeGreaterThanOrEqual(CONNECTIONS);
      await load.close();
    }
    expect(cpuOf(running.pid).size).toBeGreaterThan(0);
  } finally {
    await running.close();
  }
});

test('load accounts for every arrival, however few connections there are', async () => {
  const hello = CONTENDERS.find(({ name }) => name === 'node-hello');
  if (hello === undefined) throw new Error('there is no node-hello');
  const running = await startContender(hello, upstream, undefined);
  try {
    const load = await LoadConnections.open(running.question('2KB'), 2);
    const { latencies, disturbed } = await load.arrive(1000, 50, seededRandom(1));
    expect(latencies.length + disturbed).toBeGreaterThan(0);
    expect(Math.min(...latencies)).toBeGreaterThan(0);
    await load.close();
  } finally {
    await running.close();
  }
});

test('a contender on Node.js tells what it allocates', async () => {
  const hello = CONTENDERS.find(({ name }) => name === 'node-hello');
  if (hello === undefined) throw new Error('there is no node-hello');
  const running = await startContender(hello, upstream, undefined);
  try {
    const load = await LoadConnections.open(running.question('2KB'), 1);
    const before = await running.allocations();
    const requests = await load.saturate(100);
    const after = await running.allocations();
    // A URL object alone takes more.
    expect(after.heap - before.heap).toBeGreaterThan(100 * requests);
    expect(after.external).toBeGreaterThanOrEqual(before.external);
    await load.close();
  } finally {
    await running.close();
  }
});

test.each([
  ['another status', 404, 2048],
  ['a body that is too short', 200, 2047],
])('load refuses %s', async (_, status, length) => {
  const server = createServer((_req, res) => {
    res.writeHead(status).end(Buffer.alloc(length));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  const question = { origin: `http://127.0.0.1:${port}`, path: '/open/2KB', length: 2048, headers: [] };
  await expect(LoadConnections.open(question, CONNECTIONS)).rejects.toThrow(
    new RegExp(`\\b${status}\\b.*\\b${length}\\b`),
  );
  server.close();
  server.closeAllConnections();
});

test('load sends a request again, once, when a kept connection was closed', async () => {
  let [requests, refusing] = [0, false];
  const server = createServer((req, res) => {
    requests += 1;
    if (refusing || requests === 2) req.socket.destroy();
    else res.end('1234');
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  const load = await LoadConnections.open(
    { origin: `http://127.0.0.1:${port}`, path: '/', length: 4, headers: [] },
    1,
  );
  expect(await load.saturate(0)).toBe(1);
  expect({ requests, repeated: load.repeated }).toEqual({ requests: 3, repeated: 1 });
  refusing = true;
  await expect(load.saturate(0)).rejects.toMatchObject({ code: 'UND_ERR_SOCKET' });
  expect(requests).toBe(5);
  await load.close();
  server.close();
});
