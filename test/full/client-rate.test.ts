import { once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { setTimeout as delay, setImmediate as nextTurn } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { closing } from '../support/closing.ts';
import { startGateway } from '../support/gateway.ts';
import { createTestAuthority, type TlsFiles, writeTlsFiles } from '../support/issued-certificates.ts';
import { type RawClient, valuesOf } from '../support/raw-client.ts';
import { startUpstream } from '../support/scripted-upstream.ts';
import { until } from '../support/until.ts';
import { codeOf, connect } from '../support/wire.ts';

const IDLE_MS = 500;
const STEP_MS = IDLE_MS / 40;
/** More than all buffers on the way of a body. */
const LARGE = 32 * 2 ** 20;
const KEPT = 1024;
/** Above 1 MiB and below 1 GiB per second. */
const READ_PER_MS = 16_000;
const CHALLENGE = 'Digest realm="r", nonce="n", qop="auth"';
const REQUESTS = 'digest_gateway_requests_total';

const post = (length: number): string => `POST /up HTTP/1.1\r\nHost: x\r\nContent-Length: ${length}\r\n\r\n`;

function reply(req: IncomingMessage, res: ServerResponse): void {
  req.resume().on('end', () => res.end(req.url === '/large' ? Buffer.alloc(LARGE) : 'ok'));
}

describe.each([
  ['TCP', false],
  ['TLS', true],
])('a client over %s', (_transport, overTls) => {
  let ca: string;
  let files: TlsFiles;
  beforeAll(async () => {
    const authority = await createTestAuthority();
    ca = authority.ca;
    files = await writeTlsFiles(await authority.server(), ca);
  });
  afterAll(() => files.remove());

  /** A gateway that wants this rate of a client. */
  async function start(minRate: string, serve = reply) {
    const upstream = await startUpstream((req, res) => {
      req.on('error', () => {});
      if (req.headers.authorization === undefined)
        res.writeHead(401, { 'www-authenticate': CHALLENGE }).end();
      else serve(req, res);
    });
    closing.push(() => upstream.close());
    const settings = {
      tls: { allowPlaintext: true },
      timeouts: { idle: `${IDLE_MS}ms`, total: '60s' },
      body: { replayUpTo: `${KEPT}B`, minRate },
    };
    const gateway = await startGateway(
      { up: { origin: upstream.origin, settings } },
      { listen: { port: 0, ...(overTls && { tls: files.section }) } },
    );
    closing.push(() => gateway.close());
    const client = await connect(gateway.port, overTls ? ca : undefined);
    return { gateway, client };
  }

  /** Sends this again and again until the returned function is called. */
  function sendOn(client: RawClient, bytes: Buffer): () => void {
    const sending = setInterval(() => void client.send(bytes), STEP_MS);
    const stop = (): void => clearInterval(sending);
    closing.push(stop);
    return stop;
  }

  test.each([
    ['is kept', KEPT],
    ['streams', 1_000_000],
  ])('that sends a body byte by byte gets 408 request-timeout: the body %s', async (_how, length) => {
    const { client } = await start('10KiB');
    await client.send(post(length));
    const stop = sendOn(client, Buffer.alloc(1));
    const answer = await client.answer();
    stop();
    expect([answer.status, codeOf(answer)]).toEqual([408, 'request-timeout']);
    expect(answer.body.toString()).toContain('body.minRate');
    expect(valuesOf(answer, 'connection')).toEqual(['close']);
  });

  test('that sends a body above the rate is served, however long it takes', async () => {
    const { client } = await start('10KiB');
    const piece = Buffer.alloc(2_000);
    const count = (4 * IDLE_MS) / STEP_MS;
    await client.send(post(count * piece.length));
    for (let sent = 0; sent < count; sent += 1) {
      await client.send(piece);
      await delay(STEP_MS);
    }
    expect((await client.answer()).status).toBe(200);
  });

  test('that waits for an upstream which reads below the rate is served', async () => {
    const { client } = await start('1MiB', (req, res) => {
      const reading = setInterval(() => req.read(1_000), STEP_MS);
      setTimeout(() => {
        clearInterval(reading);
        reply(req, res);
      }, 4 * IDLE_MS);
    });
    const begun = performance.now();
    await client.send(post(LARGE), Buffer.alloc(LARGE));
    expect((await client.answer()).status).toBe(200);
    expect(performance.now() - begun).toBeGreaterThanOrEqual(4 * IDLE_MS - 1);
  });

  /** Reads `READ_PER_MS`; returns how many bytes came before the end of the response or of the connection. */
  async function readSlowly(client: RawClient, path: string, length = LARGE): Promise<number> {
    const { socket } = client;
    socket.removeAllListeners('data').pause();
    socket.on('readable', () => {});
    await client.send(`GET ${path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n`);
    let received = 0;
    const begun = performance.now();
    while (received < length && !socket.closed && !socket.readableEnded) {
      // Parts that a busy process reads late are made up for.
      const isLate = received < (performance.now() - begun) * READ_PER_MS;
      if (isLate) received += socket.read(Math.min(socket.readableLength, 64 * 1024))?.length ?? 0;
      await (isLate ? nextTurn() : delay(1));
    }
    return received;
  }

  test('that reads below the rate loses its connection, although it never stops', async () => {
    const { gateway, client } = await start('1GiB');
    expect(await readSlowly(client, '/large')).toBeLessThan(LARGE);
    await until(
      async () => (await gateway.metric(REQUESTS, { code: 'client-timeout', status: '499' })) === 1,
    );
  });

  test('that reads above the rate gets everything', async () => {
    const { client } = await start('1MiB');
    expect(await readSlowly(client, '/large')).toBeGreaterThanOrEqual(LARGE);
  });

  test('that has read all events of a stream, and waits for the next one, is served', async () => {
    const burst = LARGE / 2;
    const read = Promise.withResolvers<void>();
    const { client } = await start('1MiB', (_req, res) => {
      res.writeHead(200, { 'content-type': 'text/event-stream' }).write(Buffer.alloc(burst));
      const sending = setInterval(() => res.write('data: x\n\n'), IDLE_MS / 2);
      closing.push(() => clearInterval(sending));
      void read.promise
        .then(() => delay(4 * IDLE_MS))
        .then(() => {
          clearInterval(sending);
          res.end('data: last\n\n');
        });
    });
    // More slowly than the burst comes, so that its bytes wait for the client.
    await readSlowly(client, '/events', burst);
    let text = '';
    client.socket.removeAllListeners('readable').on('data', (piece: Buffer) => {
      text += piece.subarray(-100).toString('latin1');
    });
    client.socket.resume();
    read.resolve();
    await once(client.socket, 'end');
    expect(text).toContain('data: last');
  });
});
