import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { Readable } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import { describe, expect, test } from '@jest/globals';
import { Client } from 'undici';
import type { BehaviourChange } from '../../../../src/simulator/settings.ts';
import { BodyMemory, BodyShare } from '../../../../src/transport/request-body.ts';
import { startGateway } from '../../../support/gateway.ts';
import { startGatewayProcess } from '../../../support/gateway-process.ts';
import type { RawClient } from '../../../support/raw-client.ts';
import { type RunningScene, startScene } from '../../../support/scene.ts';
import { startUpstream } from '../../../support/scripted-upstream.ts';
import { startSimulator } from '../../../support/simulator.ts';
import { until } from '../../../support/until.ts';
import { codeOf, connect, echoOf, useRunning } from '../../../support/wire.ts';

describe('bodies that are kept', () => {
  const SIZE = 60 * 1024;
  const BODY = Buffer.alloc(SIZE, 'a body that is to be kept ');
  const SHA256 = createHash('sha256').update(BODY).digest('hex');
  const HEAD = `POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: ${SIZE}\r\n\r\n`;

  /** A gateway with room for three such bodies of one client, which knows a nonce. */
  async function startSmall(behaviour: BehaviourChange = {}): Promise<RunningScene> {
    const pair = await startScene({
      behaviour,
      settings: { connections: 4, body: { replayUpTo: '64KiB' } },
      top: { listen: { port: 0, limits: { bodyMemory: '400KiB' } } },
    });
    expect((await pair.get('/echo')).status).toBe(200);
    return pair;
  }

  /** A client that has sent all of its body but the last byte; resolves when the gateway has read it. */
  async function sendMost({ gateway }: RunningScene): Promise<RawClient> {
    const read = () => gateway.metric('digest_gateway_request_bytes_total');
    const before = await read();
    const client = await connect(gateway.port);
    await client.send(HEAD, BODY.subarray(1));
    await until(async () => (await read()) === before + SIZE - 1);
    return client;
  }

  /** How many exchanges one whole request takes: one if its body was kept, and two if a challenge was asked for first. */
  async function exchangesOfOne(pair: RunningScene): Promise<number> {
    const { requests } = pair.simulator.counts('submissions');
    const client = await connect(pair.gateway.port);
    await client.send(HEAD, BODY);
    expect(echoOf(await client.answer()).body).toEqual({ length: SIZE, sha256: SHA256 });
    return pair.simulator.counts('submissions').requests - requests;
  }

  test('streams bodies for which there is no memory, over half of the connections; the others are refused', async () => {
    const pair = await startSmall();
    const sending: RawClient[] = [];
    for (let index = 0; index < 5; index += 1) sending.push(await sendMost(pair));
    for (let index = 0; index < 3; index += 1) {
      const refused = await connect(pair.gateway.port);
      await refused.send(HEAD, BODY.subarray(1));
      const answer = await refused.answer();
      expect([answer.status, codeOf(answer)]).toEqual([503, 'overloaded']);
      expect(answer.body.toString()).toContain('listen.limits.bodyMemory');
    }
    expect((await pair.get('/echo')).status).toBe(200);
    for (const client of sending) await client.send(BODY.subarray(0, 1));
    for (const client of sending) {
      const { length, sha256 } = echoOf(await client.answer()).body;
      const sent = Buffer.concat([BODY.subarray(1), BODY.subarray(0, 1)]);
      expect([length, sha256]).toEqual([SIZE, createHash('sha256').update(sent).digest('hex')]);
    }
    expect(await exchangesOfOne(pair)).toBe(1);
  });

  test('frees the memory of a client that leaves before its body is whole', async () => {
    const pair = await startSmall();
    for (let index = 1; index <= 12; index += 1) {
      (await sendMost(pair)).close();
      await until(
        async () =>
          (await pair.gateway.metric('digest_gateway_requests_total', { code: 'client-closed' })) === index,
      );
    }
    expect(await exchangesOfOne(pair)).toBe(1);
  });

  test('frees the memory of bodies that turned out too large', async () => {
    const pair = await startScene({
      settings: { body: { replayUpTo: '64KiB', max: '64KiB' } },
      top: { listen: { port: 0, limits: { bodyMemory: '400KiB' } } },
    });
    expect((await pair.get('/echo')).status).toBe(200);
    const size = (80 * 1024).toString(16);
    for (let index = 0; index < 5; index += 1) {
      const client = await connect(pair.gateway.port);
      const head = 'POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n';
      await client.send(`${head}${size}\r\n`, Buffer.alloc(80 * 1024), '\r\n0\r\n\r\n');
      expect(codeOf(await client.answer())).toBe('body-too-large');
    }
    expect(await exchangesOfOne(pair)).toBe(1);
  });

  test('refuses a body for which there is no memory when the upstream wants it protected (auth-int)', async () => {
    const pair = await startSmall({ qop: 'auth-int' });
    const sending: RawClient[] = [];
    for (let index = 0; index < 3; index += 1) sending.push(await sendMost(pair));
    const client = await connect(pair.gateway.port);
    await client.send(HEAD, BODY);
    const answer = await client.answer();
    expect([answer.status, codeOf(answer)]).toEqual([503, 'overloaded']);
    for (const each of sending) each.close();
  });

  test('counts a body that comes byte by byte for what its pieces take', async () => {
    const memory = new BodyMemory(200_000);
    const share = new BodyShare(memory, 'a');
    let pieces = 0;
    while (share.keep(Buffer.alloc(1))) pieces += 1;
    expect(pieces).toBeLessThan(200);
    share.release();
    share.release();
    expect([memory.used, share.keep(Buffer.alloc(1))]).toEqual([0, false]);
  });
});

test('bodies of one client take half of the memory that those of others leave', () => {
  const KIB = Buffer.alloc(1024);
  const memory = new BodyMemory(400 * 1024);
  /** Bytes of the bodies that a client can have kept, one piece each, and what gives them back. */
  const fill = (client: string) => {
    const before = memory.used;
    const shares: BodyShare[] = [];
    do shares.push(new BodyShare(memory, client));
    while (shares.at(-1)?.keep(KIB) === true);
    const release = () => {
      for (const share of shares) share.release();
    };
    return { bytes: memory.used - before, release };
  };
  const hog = fill('hog');
  expect(hog.bytes / 1024).toBeGreaterThan(190);
  expect(hog.bytes / 1024).toBeLessThanOrEqual(200);
  const other = fill('other');
  expect(other.bytes / 1024).toBeGreaterThan(90);
  other.release();
  hog.release();
  expect(memory.used).toBe(0);
  expect(fill('other').bytes).toBe(hog.bytes);
});

describe('a body of 128 MiB', () => {
  const LARGE = 2 ** 27;
  const ALLOWED = 64 * 2 ** 20;

  const scene = useRunning(async () => {
    const simulator = await startSimulator({
      deployments: { upstream: { kind: 'submissions', family: 'manuscripts', testPaths: true } },
    });
    const { origin } = simulator.deployments.upstream;
    const settings = { body: { max: '2GiB' } };
    const gateway = await startGatewayProcess({ upstream: { origin, ca: simulator.ca, settings } });
    const client = new Client(gateway.origin);
    const close = async () => {
      await client.close();
      await gateway.close();
      await simulator.close();
    };
    return { simulator, gateway, client, close };
  });

  /** How far a large body makes the process grow above what it holds after a request of the same kind. */
  async function growth(transfer: (length: number) => Promise<void>): Promise<number> {
    const { gateway } = scene();
    await transfer(2 ** 16);
    const { now } = await gateway.memory();
    await transfer(LARGE);
    return (await gateway.memory()).peak - now;
  }

  describe('passes through a gateway that grows by less than 64 MiB:', () => {
    test('a response over TLS', async () => {
      const grown = await growth(async (length) => {
        const answer = await scene().client.request({ path: `/bytes/${length}?chunked`, method: 'GET' });
        const hash = createHash('sha256');
        let received = 0;
        for await (const chunk of answer.body) {
          hash.update(chunk);
          received += chunk.length;
        }
        expect([answer.statusCode, received]).toEqual([200, length]);
        expect(hash.digest('hex')).toBe(answer.trailers['x-checksum']);
      });
      expect(grown).toBeLessThan(ALLOWED);
    });

    test.each(['length', 'chunks'])('a request over TLS, with %s', async (framing) => {
      const grown = await growth(async (length) => {
        const size = framing === 'length' ? length : length / 4;
        const hash = createHash('sha256');
        const answer = await scene().client.request({
          path: '/echo',
          method: 'PUT',
          body: Readable.from(blocks(size, (block) => hash.update(block))),
          headers: framing === 'length' ? { 'content-length': String(size) } : {},
        });
        expect(await answer.body.json()).toMatchObject({
          body: { length: size, sha256: hash.digest('hex') },
        });
      });
      expect(grown).toBeLessThan(ALLOWED);
    });
  });

  async function* blocks(length: number, seen: (block: Buffer) => void): AsyncGenerator<Buffer> {
    const block = randomBytes(2 ** 16);
    for (let left = length; left > 0; left -= block.length) {
      const next = block.subarray(0, Math.min(left, block.length));
      seen(next);
      yield next;
    }
  }
});

describe('back-pressure', () => {
  const LENGTH = 64 * 2 ** 20;
  /** More than the socket buffers of two connections hold, far less than the body. */
  const BUFFERED = 48 * 2 ** 20;
  const QUIET_MS = 150;
  const block = Buffer.alloc(2 ** 16);
  let answerTo: (req: IncomingMessage, res: ServerResponse) => void = () => undefined;

  const scene = useRunning(async () => {
    const upstream = await startUpstream((req, res) => {
      if (req.headers.authorization !== undefined) answerTo(req, res);
      else res.writeHead(401, { 'www-authenticate': 'Digest realm="r", nonce="n"' }).end();
    });
    const settings = { tls: { allowPlaintext: true }, body: { max: '1GiB' } };
    const gateway = await startGateway({ upstream: { origin: upstream.origin, settings } });
    const close = async () => {
      await gateway.close();
      await upstream.close();
    };
    return { gateway, close };
  });

  /** Where a count stands still: that nothing more comes can only be seen by waiting a little. */
  async function settled(count: () => number): Promise<number> {
    for (;;) {
      const before = count();
      await delay(QUIET_MS);
      if (count() === before && before > 0) return before;
    }
  }

  test('stops the upstream while the client does not read; then the client gets everything', async () => {
    let sent = 0;
    answerTo = async (_req, res) => {
      res.writeHead(200, { 'content-length': LENGTH });
      while (sent < LENGTH) {
        sent += block.length;
        if (!res.write(block)) await once(res, 'drain');
      }
      res.end();
    };
    const client = await connect(scene().gateway.port);
    client.socket.removeAllListeners('data').pause();
    await client.send('GET / HTTP/1.1\r\nHost: x\r\n\r\n');
    expect(await settled(() => sent)).toBeLessThan(BUFFERED);
    let received = 0;
    client.socket.on('data', (chunk) => {
      received += chunk.length;
    });
    client.socket.resume();
    while (received < LENGTH) await once(client.socket, 'data');
    expect(sent).toBe(LENGTH);
  });

  test('stops the client while the upstream does not read; then the upstream gets everything', async () => {
    let received = 0;
    const upstream = new Promise<IncomingMessage>((resolve) => {
      answerTo = (req, res) => {
        req.on('data', (chunk) => {
          received += chunk.length;
        });
        req.pause();
        req.on('end', () => res.end(String(received)));
        resolve(req);
      };
    });
    const client = await connect(scene().gateway.port);
    await client.send(`PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: ${LENGTH}\r\n\r\n`);
    let sent = 0;
    const sending = (async () => {
      while (sent < LENGTH) {
        await client.send(block);
        sent += block.length;
      }
    })();
    const req = await upstream;
    expect(await settled(() => sent)).toBeLessThan(BUFFERED);
    req.resume();
    await sending;
    expect((await client.answer()).body.toString()).toBe(String(LENGTH));
  });
});
