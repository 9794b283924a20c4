import type { ServerResponse } from 'node:http';
import { describe, expect, test } from '@jest/globals';
import { startGateway } from '../../support/running-gateway.ts';
import { startUpstream } from '../../support/scripted-upstream.ts';
import { codeOf, echoOf, useClients, useRunning, useWire } from '../../support/wire.ts';

const wire = useWire();
const connect = useClients();
const IN_FLIGHT = 'digest_gateway_requests_in_flight';

test('twenty in one write, with bodies, errors and HEAD among them', async () => {
  const client = await wire.connect();
  const numbers = Array.from({ length: 20 }, (_, index) => index);
  const kinds = [
    (n: number) => `GET /echo/${n} HTTP/1.1\r\nHost: x\r\n\r\n`,
    (n: number) => `POST /echo/${n} HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello`,
    (n: number) =>
      `PUT /echo/${n} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n`,
    () => 'GET http://nowhere.example/ HTTP/1.1\r\nHost: x\r\n\r\n',
    () => 'HEAD /bytes/100000 HTTP/1.1\r\nHost: x\r\n\r\n',
  ];
  await client.send(...numbers.map((n) => kinds[n % kinds.length]?.(n) ?? ''));
  for (const n of numbers) {
    const answer = await client.answer(n % kinds.length === 4 ? 'HEAD' : 'GET');
    if (n % kinds.length < 3) expect(echoOf(answer).url).toBe(`/echo/${n}`);
    if (n % kinds.length === 3) expect(codeOf(answer)).toBe('no-deployment');
    if (n % kinds.length === 4) expect(answer.status).toBe(200);
  }
  expect(client.pending).toBe(0);
});

test('large ones, which cannot all be held back until their turn', async () => {
  const client = await wire.connect();
  const sizes = [3_000_000, 5, 2_000_000, 0, 4_000_000];
  await client.send(...sizes.map((size) => `GET /bytes/${size} HTTP/1.1\r\nHost: x\r\n\r\n`));
  for (const size of sizes) expect((await client.answer()).body.length).toBe(size);
});

describe('when the first answer is late', () => {
  const waiting: ServerResponse[] = [];
  let arrived: (() => void) | undefined;
  const scene = useRunning(async () => {
    const upstream = await startUpstream((req, res) => {
      if (req.headers.authorization === undefined) {
        res.writeHead(401, { 'www-authenticate': 'Digest realm="r", nonce="n"' }).end();
        return;
      }
      if (req.url === '/endless') res.write('x');
      if (req.url === '/quick') res.end(req.url);
      else waiting.push(res);
      arrived?.();
    });
    const settings = { tls: { allowPlaintext: true } };
    const gateway = await startGateway({ upstream: { origin: upstream.origin, settings } });
    const close = async () => {
      await gateway.close();
      await upstream.close();
    };
    // With a nonce at hand, no request waits for another's handshake.
    await (await fetch(`${gateway.origin}/quick`)).text();
    return { gateway, close };
  });

  /** Resolves when so many more requests have reached the upstream. */
  function arrivals(count: number): Promise<void> {
    return new Promise((resolve) => {
      let left = count;
      arrived = () => {
        left -= 1;
        if (left === 0) resolve();
      };
    });
  }

  test('the second waits for it', async () => {
    const client = await connect(scene().gateway.port);
    const both = arrivals(2);
    await client.send('GET /slow HTTP/1.1\r\nHost: x\r\n\r\nGET /quick HTTP/1.1\r\nHost: x\r\n\r\n');
    await both;
    expect(client.pending).toBe(0);
    waiting.pop()?.end('/slow');
    expect((await client.answer()).body.toString()).toBe('/slow');
    expect((await client.answer()).body.toString()).toBe('/quick');
  });

  test('a client that leaves takes back all of them', async () => {
    const { gateway } = scene();
    const client = await connect(gateway.port);
    const both = arrivals(2);
    await client.send('GET /slow HTTP/1.1\r\nHost: x\r\n\r\nGET /endless HTTP/1.1\r\nHost: x\r\n\r\n');
    await both;
    const left = Promise.all(
      waiting.splice(0).map((res) => new Promise((resolve) => res.once('close', resolve))),
    );
    client.close();
    expect(await left).toHaveLength(2);
    expect(await gateway.metric(IN_FLIGHT)).toBe(0);
    const gone = { code: 'client-closed', status: '499' };
    expect(await gateway.metric('digest_gateway_requests_total', gone)).toBe(2);
    expect(gateway.logged).toEqual([]);
  });
});
