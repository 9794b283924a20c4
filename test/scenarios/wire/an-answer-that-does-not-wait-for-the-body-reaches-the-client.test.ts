import type { IncomingMessage, ServerResponse } from 'node:http';
import { describe, expect, test } from '@jest/globals';
import { startGateway } from '../../support/running-gateway.ts';
import { startUpstream } from '../../support/scripted-upstream.ts';
import { useClients, useRunning } from '../../support/wire.ts';

const LENGTH = 20_000_000;
const connect = useClients();
let answerTo: (req: IncomingMessage, res: ServerResponse) => void = () => undefined;

const scene = useRunning(async () => {
  const upstream = await startUpstream((req, res) => {
    if (req.headers.authorization !== undefined) answerTo(req, res);
    else res.writeHead(401, { 'www-authenticate': 'Digest realm="r", nonce="n"' }).end();
  });
  const settings = { tls: { allowPlaintext: true }, connections: 2 };
  const gateway = await startGateway({ upstream: { origin: upstream.origin, settings } });
  const close = async () => {
    await gateway.close();
    await upstream.close();
  };
  return { gateway, close };
});

const refuse = (_req: IncomingMessage, res: ServerResponse): void => {
  res.writeHead(403, { 'content-type': 'text/plain' }).end('not you');
};

const framings = [
  ['its length', `Content-Length: ${LENGTH}`, Buffer.alloc(LENGTH)],
  [
    'chunks',
    'Transfer-Encoding: chunked',
    Buffer.concat([
      Buffer.from(`${LENGTH.toString(16)}\r\n`),
      Buffer.alloc(LENGTH),
      Buffer.from('\r\n0\r\n\r\n'),
    ]),
  ],
] as const;

describe.each(framings)('a large body with %s', (_what, framing, bytes) => {
  const head = `POST / HTTP/1.1\r\nHost: x\r\n${framing}\r\n\r\n`;

  test('of which only a part has come: the answer is there', async () => {
    answerTo = refuse;
    const client = await connect(scene().gateway.port);
    await client.send(head, bytes.subarray(0, 2_000_000));
    const answer = await client.answer();
    expect([answer.status, answer.body.toString()]).toEqual([403, 'not you']);
  });

  test('that comes whole: the connection then serves the next request', async () => {
    answerTo = refuse;
    const client = await connect(scene().gateway.port);
    const sent = client.send(head, bytes);
    expect((await client.answer()).status).toBe(403);
    await sent;
    answerTo = (_req, res) => res.end('next');
    await client.send('GET / HTTP/1.1\r\nHost: x\r\n\r\n');
    expect((await client.answer()).body.toString()).toBe('next');
  });

  test('while the answer is on its way already: both go on', async () => {
    answerTo = (req, res) => {
      let seen = 0;
      res.write('begun;');
      req.on('data', (chunk: Buffer) => {
        seen += chunk.length;
      });
      req.on('end', () => res.end(`seen ${seen}`));
    };
    const client = await connect(scene().gateway.port);
    const half = bytes.length / 2;
    await client.send(head, bytes.subarray(0, half));
    while (client.pending === 0) await new Promise((resolve) => client.socket.once('data', resolve));
    await client.send(bytes.subarray(half));
    expect((await client.answer()).body.toString()).toBe(`begun;seen ${LENGTH}`);
  });
});

test('when the body never comes whole, the connection ends', async () => {
  answerTo = refuse;
  const client = await connect(scene().gateway.port);
  await client.send(
    `POST / HTTP/1.1\r\nHost: x\r\nContent-Length: ${LENGTH}\r\n\r\n`,
    Buffer.alloc(2_000_000),
  );
  expect((await client.answer()).status).toBe(403);
  expect((await client.end()).toString()).toBe('');
});

test('again and again, no connection to the upstream is lost', async () => {
  const { gateway } = scene();
  answerTo = refuse;
  for (let count = 0; count < 10; count += 1) {
    const client = await connect(gateway.port);
    await client.send(
      `PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: ${LENGTH}\r\n\r\n`,
      Buffer.alloc(2_000_000),
    );
    expect((await client.answer()).status).toBe(403);
    client.close();
  }
  answerTo = (_req, res) => res.end('still here');
  expect(await (await fetch(gateway.origin)).text()).toBe('still here');
  expect(await gateway.metric('digest_gateway_requests_in_flight')).toBe(0);
});
