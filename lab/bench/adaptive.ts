import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { Pool } from 'undici';
import { startGateway } from '../../test/support/gateway.ts';

/** Milliseconds of a response while the upstream is not overloaded. */
const BASE = 40;
/** Requests that the overloaded upstream serves at a time without becoming slower. */
const CAPACITY = 8;

interface Upstream {
  readonly name: string;
  /** Milliseconds of a response while so many requests are there. */
  readonly latency: (concurrent: number) => number;
  /** Requests per second, whether or not they get responses; undefined: 64 clients that each wait for their response. */
  readonly rate: number | undefined;
}

const exponential = (mean: number): number => -mean * Math.log(1 - Math.random());

const UPSTREAMS: Upstream[] = [
  {
    name: 'overloaded 2x',
    latency: (concurrent) => BASE * Math.max(1, concurrent / CAPACITY),
    rate: (2 * 1000 * CAPACITY) / BASE,
  },
  {
    name: 'overloaded 2x, collapses',
    latency: (concurrent) => BASE * Math.max(1, concurrent / CAPACITY) ** 1.5,
    rate: (2 * 1000 * CAPACITY) / BASE,
  },
  { name: 'healthy', latency: () => 2 * BASE * (0.75 + Math.random() / 2), rate: undefined },
  { name: 'healthy, varying', latency: () => 5 + exponential(2 * BASE), rate: undefined },
  { name: 'healthy, two operations', latency: () => (Math.random() < 0.5 ? 20 : 300), rate: undefined },
  {
    name: 'healthy, other operations every 4 s',
    latency: () => (Math.floor(performance.now() / 4000) % 2 === 0 ? 30 : 240),
    rate: undefined,
  },
];

const { values } = parseArgs({
  options: { seconds: { type: 'string', default: '10' }, only: { type: 'string' } },
});
const seconds = Number(values.seconds);

for (const upstream of UPSTREAMS) {
  if (values.only !== undefined && !upstream.name.includes(values.only)) continue;
  for (const adapt of [false, true, false, true]) {
    const result = await measure(upstream, adapt);
    process.stdout.write(`${upstream.name.padEnd(26)} adapt ${String(adapt).padEnd(6)} ${result}\n`);
  }
}

async function measure({ latency, rate }: Upstream, adapt: boolean): Promise<string> {
  let concurrent = 0;
  const server = createServer((req, res: ServerResponse) => {
    if (req.headers.authorization === undefined) {
      res.writeHead(401, { 'www-authenticate': 'Digest realm="r", nonce="n", qop="auth"' }).end();
      return;
    }
    concurrent += 1;
    setTimeout(() => {
      concurrent -= 1;
      res.end('ok');
    }, latency(concurrent));
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  await using gateway = await startGateway(
    {
      measured: {
        origin: `http://127.0.0.1:${port}`,
        settings: { tls: { allowPlaintext: true }, connections: { max: 64, adapt } },
      },
    },
    { listen: { port: 0, limits: { connectionsPerAddress: 10_000 } } },
  );
  const pool = new Pool(gateway.origin, { connections: 4000 });
  const times: number[] = [];
  let refused = 0;
  let isMeasured = false;
  let isOver = false;
  const one = async (): Promise<void> => {
    const begun = performance.now();
    const { statusCode, body } = await pool.request({ path: '/x', method: 'GET' });
    await body.dump();
    if (!isMeasured) return;
    if (statusCode === 200) times.push(performance.now() - begun);
    else refused += 1;
  };
  await one();
  const pending = new Set<Promise<void>>();
  const load = async (): Promise<void> => {
    if (rate === undefined) {
      await Promise.all(
        Array.from({ length: 64 }, async () => {
          while (!isOver) await one();
        }),
      );
      return;
    }
    const start = performance.now();
    for (let sent = 0; !isOver; ) {
      for (; sent < ((performance.now() - start) / 1000) * rate; sent += 1) {
        const request = one().finally(() => pending.delete(request));
        pending.add(request);
      }
      await delay(2);
    }
    await Promise.all(pending);
  };
  const running = load();
  // The queue fills, and the limit adapts.
  await delay(seconds * 1000);
  isMeasured = true;
  const from = performance.now();
  const limits: number[] = [];
  for (let polls = 0; polls < 2 * seconds; polls += 1) {
    await delay(500);
    limits.push(await gateway.metric('digest_gateway_upstream_connections', { state: 'limit' }));
  }
  isMeasured = false;
  const took = (performance.now() - from) / 1000;
  isOver = true;
  await running;
  await pool.close();
  server.closeAllConnections();
  server.close();
  times.sort((a, b) => a - b);
  const at = (part: number): string => (times[Math.floor(times.length * part)] ?? 0).toFixed(0);
  return `${(times.length / took).toFixed(0)}/s  p50 ${at(0.5)} ms  p99 ${at(0.99)} ms  refused ${(refused / took).toFixed(0)}/s  limit ${Math.min(...limits)} to ${Math.max(...limits)}`;
}
