import type { ServerResponse } from 'node:http';
import { describe, expect, test } from '@jest/globals';
import { startGateway } from '../../support/running-gateway.ts';
import { startUpstream } from '../../support/scripted-upstream.ts';
import { until } from '../../support/until.ts';
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
  const seen: (string | undefined)[] = [];
  let arrived: ((res: ServerResponse) => void) | undefined;
  const scene = useRunning(async () => {
    const upstream = await startUpstream((req, res) => {
      if (req.headers.authorization === undefined) {
        res.writeHead(401, { 'www-authenticate': 'Digest realm="r", nonce="n"' }).end();
        return;
      }
      seen.push(req.url);
      if (req.url === '/quick') res.end(req.url);
      arrived?.(res);
    });
    const settings = { tls: { allowPlaintext: true } };
    const gateway = await startGateway({ upstream: { origin: upstream.origin, settings } });
    const close = async () => {
      await gateway.close();
      await upstream.close();
    };
    // With a nonce at hand, no request waits for another's handshake.
    await (await fetch(`${gateway.origin}/quick`)).text();
    seen.length = 0;
    return { gateway, close };
  });

  /** Resolves with the next request that reaches the upstream. */
  function arrival(): Promise<ServerResponse> {
    return new Promise((resolve) => {
      arrived = resolve;
    });
  }

  test('the second waits for it', async () => {
    const client = await connect(scene().gateway.port);
    const first = arrival();
    await client.send('GET /slow HTTP/1.1\r\nHost: x\r\n\r\nGET /quick HTTP/1.1\r\nHost: x\r\n\r\n');
    const slow = await first;
    const second = arrival();
    expect(seen.splice(0)).toEqual(['/slow']);
    slow.end('/slow');
    expect((await client.answer()).body.toString()).toBe('/slow');
    await second;
    expect(seen.splice(0)).toEqual(['/quick']);
    expect((await client.answer()).body.toString()).toBe('/quick');
  });

  test('a client that leaves takes back the first, and the second is never read', async () => {
    const { gateway } = scene();
    const client = await connect(gateway.port);
    const first = arrival();
    await client.send('GET /slow HTTP/1.1\r\nHost: x\r\n\r\nGET /endless HTTP/1.1\r\nHost: x\r\n\r\n');
    const slow = await first;
    const left = new Promise((resolve) => slow.once('close', resolve));
    client.close();
    await left;
    await until(async () => (await gateway.metric(IN_FLIGHT)) === 0);
    const gone = { code: 'client-closed', status: '499' };
    expect(await gateway.metric('digest_gateway_requests_total', gone)).toBe(1);
    expect(seen.splice(0)).toEqual(['/slow']);
    expect(gateway.logged).toEqual([]);
  });
});
