import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { afterEach, expect, test } from '@jest/globals';
import { startGatewayProcess } from '../../../support/gateway-process.ts';
import { startRawUpstream } from '../../../support/scripted-upstream.ts';
import { startSimulator } from '../../../support/simulator.ts';
import { until } from '../../../support/until.ts';
import { useRunning } from '../../../support/wire.ts';

const LIMIT_MS = 600_000;
const MIB = 2 ** 20;
const INTERIM = 'HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload; as=style\r\n\r\n';

const scene = useRunning(async () => {
  const simulator = await startSimulator({
    deployments: { upstream: { kind: 'submissions', family: 'manuscripts', testPaths: true } },
  });
  const flood = await startRawUpstream(() => INTERIM.repeat(60_000));
  const { origin } = simulator.deployments.upstream;
  const gateway = await startGatewayProcess(
    {
      upstream: { origin, ca: simulator.ca, settings: { timeouts: { idle: '15s' } } },
      flood: {
        origin: flood.origin,
        settings: { match: { host: 'flood.internal' }, tls: { allowPlaintext: true } },
      },
    },
    {
      // The clients share one process, which is busy: it may write long after it has connected.
      listen: { port: 0, limits: { connectionsPerAddress: 3_000, headersTimeout: '60s' } },
    },
  );
  const close = async () => {
    await gateway.close();
    await flood.close();
    await simulator.close();
  };
  return { gateway, close };
});

const sockets = new Set<Socket>();
afterEach(() => {
  for (const socket of sockets) socket.destroy();
  sockets.clear();
});

/** A client that the gateway may cut off at any time. */
async function open(): Promise<Socket> {
  const socket = connect({ port: Number(new URL(scene().gateway.origin).port), host: '127.0.0.1' });
  sockets.add(socket);
  socket.on('error', () => socket.destroy());
  await once(socket, 'connect');
  return socket;
}

/** Asks for far more than it reads. */
async function neverReads(): Promise<void> {
  const socket = await open();
  socket.pause();
  socket.write('GET /bytes/1048576 HTTP/1.1\r\nHost: x\r\n\r\n'.repeat(2_000));
}

/** Sends half of a body that would be kept, and no more. */
async function stopsInBody(): Promise<void> {
  const socket = await open();
  socket.resume();
  socket.write(`POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: ${MIB}\r\n\r\n`);
  socket.write(Buffer.alloc(MIB / 2));
}

/** Resolves when the gateway takes no more: it has everything, or leaves it to the client to wait. */
async function allTaken(): Promise<void> {
  for (let before = -1; ; await delay(1_000)) {
    const left = Array.from(sockets, ({ writableLength }) => writableLength).reduce(
      (sum, each) => sum + each,
    );
    if (left === before) return;
    before = left;
  }
}

/** Resolves to the status line. */
async function asksForFlood(): Promise<string> {
  const socket = await open();
  socket.write('GET / HTTP/1.1\r\nHost: flood.internal\r\n\r\n');
  let text = '';
  for await (const chunk of socket) {
    text += String(chunk);
    // The gateway passes a few interim responses on before it gives the upstream up.
    const final = /^HTTP\/1\.1 [2-5]\d\d.*$/m.exec(text);
    if (final !== null) return final[0].trim();
  }
  return 'none';
}

test(
  'serves other clients, within 512 MiB, while all kinds of floods come at once',
  async () => {
    const { gateway } = scene();
    const floods = Array.from({ length: 8 }, asksForFlood);
    const unread = Array.from({ length: 8 }, neverReads);
    const bodies = Array.from({ length: 1_000 }, stopsInBody);
    const statuses = new Set<number>();
    let served = 0;
    let over = false;
    const others = Array.from({ length: 4 }, async () => {
      while (!over) {
        const answer = await fetch(`${gateway.origin}/status/204`);
        statuses.add(answer.status);
        served += 1;
      }
    });
    expect(new Set(await Promise.all(floods))).toEqual(new Set(['HTTP/1.1 502 Bad Gateway']));
    await Promise.all([...unread, ...bodies]);
    await allTaken();
    const wanted = served + 100;
    await until(() => served >= wanted, LIMIT_MS);
    over = true;
    await Promise.all(others);
    expect(statuses).toEqual(new Set([204]));
    expect((await fetch(`${gateway.control}/livez`)).status).toBe(200);
    expect((await gateway.memory()).peak).toBeLessThan(512 * MIB);
    // Exchanges without progress end by themselves: nobody reads and nobody sends.
    const isIdle = async () => (await gateway.metric('digest_gateway_requests_in_flight')) === 0;
    for (const socket of sockets) socket.destroy();
    await until(isIdle);
  },
  LIMIT_MS,
);
