import { once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import { expect, test } from '@jest/globals';
import { startGateway } from '../../support/running-gateway.ts';
import { startUpstream } from '../../support/scripted-upstream.ts';
import { useClients, useRunning } from '../../support/wire.ts';

const LENGTH = 256 * 2 ** 20;
/** More than the socket buffers of two connections hold, far less than the body. */
const BUFFERED = 48 * 2 ** 20;
const QUIET_MS = 150;
const block = Buffer.alloc(2 ** 16);
const connect = useClients();
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

test('a client that does not read stops the upstream, and then gets everything', async () => {
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

test('an upstream that does not read stops the client, and then gets everything', async () => {
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
