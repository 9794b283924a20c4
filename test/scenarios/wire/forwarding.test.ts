import { spawn } from 'node:child_process';
import { hash } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { type AddressInfo, connect as connectTcp } from 'node:net';
import { text } from 'node:stream/consumers';
import { connect as connectTls } from 'node:tls';
import { describe, expect, test } from '@jest/globals';
import { closing } from '../../support/closing.ts';
import { startGateway } from '../../support/gateway.ts';
import { createTestAuthority, writeTlsFiles } from '../../support/issued-certificates.ts';
import { valuesOf } from '../../support/raw-client.ts';
import { needPackages } from '../../support/system-packages.ts';
import { codeOf, connect, echoOf, useReplies, useRunning, useWire } from '../../support/wire.ts';

const wire = useWire();
const raw = useReplies();

/** Values of a field that the upstream saw, in their order. */
async function seen(name: string, head: string): Promise<string[]> {
  const { rawHeaders } = echoOf(await wire.ask(`${head}\r\n`));
  return rawHeaders.filter((_, index) => index % 2 === 1 && rawHeaders[index - 1]?.toLowerCase() === name);
}

/** The client's response when the upstream responds like this. */
async function got(reply: string, lines = '', method = 'GET') {
  const client = await connect(raw.reply(reply));
  await client.send(`${method} / HTTP/1.1\r\nHost: x\r\n${lines}\r\n`);
  return client.answer(method);
}

describe('Max-Forwards (RFC 9110 §7.6.2)', () => {
  const options = (value: string): string =>
    `OPTIONS /echo HTTP/1.1\r\nHost: x\r\nMax-Forwards: ${value}\r\n`;

  test.each([
    ['1', '0'],
    ['007', '6'],
    ['99999999999999999999', '9007199254740990'],
    ['many', 'many'],
  ])('of OPTIONS is counted down: %s to %s', async (sent, forwarded) => {
    expect(await seen('max-forwards', options(sent))).toEqual([forwarded]);
  });

  test.each(['0', '00'])('of OPTIONS ends at the gateway: %s', async (value) => {
    const { requests } = wire.simulator.counts('submissions');
    const answer = await wire.ask(`${options(value)}\r\n`);
    expect([answer.status, codeOf(answer)]).toEqual([405, 'method-unsupported']);
    expect(wire.simulator.counts('submissions').requests).toBe(requests);
  });

  test('of other methods stays as it is, and none is added', async () => {
    const get = 'GET /echo HTTP/1.1\r\nHost: x\r\n';
    expect(await seen('max-forwards', `${get}Max-Forwards: 5\r\n`)).toEqual(['5']);
    expect(await seen('max-forwards', get)).toEqual([]);
    expect(await seen('max-forwards', 'OPTIONS /echo HTTP/1.1\r\nHost: x\r\n')).toEqual([]);
  });
});

describe('a request', () => {
  test('has its Host first, and values without the space around them', async () => {
    const { rawHeaders } = echoOf(
      await wire.ask('GET /echo HTTP/1.1\r\nX-Space: \t a \t b\t \r\nHost: \tx\r\n\r\n'),
    );
    expect(rawHeaders[0]?.toLowerCase()).toBe('host');
    expect(rawHeaders[rawHeaders.indexOf('X-Space') + 1]).toBe('a \t b');
  });

  test('may have empty lines before it', async () => {
    expect(echoOf(await wire.ask('\r\n\r\nGET /echo HTTP/1.1\r\nHost: x\r\n\r\n')).url).toBe('/echo');
  });

  test('keeps its conditions and ranges, which are for the origin server', async () => {
    const lines = [
      ['If-Match', '"a"'],
      ['If-None-Match', 'W/"b", "c"'],
      ['If-Modified-Since', 'Sunday, 06-Nov-94 08:49:37 GMT'],
      ['If-Unmodified-Since', 'Sun Nov  6 08:49:37 1994'],
      ['If-Range', '"a"'],
      ['Range', 'pages=1-2'],
    ] as const;
    const head = lines.map((pair) => `${pair.join(': ')}\r\n`).join('');
    for (const [name, value] of lines) {
      expect(await seen(name.toLowerCase(), `GET /echo HTTP/1.1\r\nHost: x\r\n${head}`)).toEqual([value]);
    }
  });

  test('keeps Referer, User-Agent and the directives of Cache-Control, and loses TE', async () => {
    const lines = [
      ['Referer', 'http://x/page?a=b'],
      ['User-Agent', 'client/1.0 (comment)'],
      ['Cache-Control', 'no-transform, max-age=0, unknown="x"'],
      ['Pragma', 'no-cache'],
    ] as const;
    const head = `${lines.map((pair) => `${pair.join(': ')}\r\n`).join('')}TE: trailers\r\nConnection: TE\r\n`;
    for (const [name, value] of [...lines, ['TE', undefined]] as const) {
      const values = await seen(name.toLowerCase(), `GET /echo HTTP/1.1\r\nHost: x\r\n${head}`);
      expect(values).toEqual(value === undefined ? [] : [value]);
    }
  });

  test('is judged by itself, not by an earlier one on its connection', async () => {
    const key = (value: string) => `GET /echo HTTP/1.1\r\nHost: x\r\n${value}\r\n`;
    const apiKeySha256 = hash('sha256', 'key');
    const { origin } = wire.simulator.deployments.submissions;
    const gateway = await startGateway(
      { upstream: { origin, ca: wire.simulator.ca } },
      {
        anonymous: false,
        clients: [{ id: 'a', identify: { apiKeySha256 }, allow: [{ deployment: 'upstream' }] }],
      },
    );
    closing.push(() => gateway.close());
    const client = await connect(gateway.port);
    const statuses: number[] = [];
    for (const line of ['X-Api-Key: key\r\n', '', 'X-Api-Key: other\r\n', 'X-Api-Key: key\r\n']) {
      await client.send(key(line));
      statuses.push((await client.answer()).status);
    }
    expect(statuses).toEqual([200, 401, 401, 200]);
  });

  test('to the gateway itself goes round a bounded number of times', async () => {
    const holder = createServer().listen(0, '127.0.0.1');
    await new Promise((resolve) => holder.once('listening', resolve));
    const { port } = holder.address() as AddressInfo;
    await new Promise((resolve) => holder.close(resolve));
    const settings = { tls: { allowPlaintext: true }, timeouts: { response: '1s', total: '2s' } };
    const gateway = await startGateway(
      { itself: { origin: `http://127.0.0.1:${port}`, settings } },
      { listen: { port } },
    );
    closing.push(() => gateway.close());
    const client = await connect(port);
    await client.send('GET /echo HTTP/1.1\r\nHost: x\r\n\r\n');
    const answer = await client.answer();
    expect([answer.status, codeOf(answer)]).toEqual([504, 'upstream-timeout']);
    expect(await gateway.metric('digest_gateway_requests_total')).toBeLessThan(1_000);
  });
});

describe('HTTP/1.0', () => {
  test('in absolute form gets a response that ends the connection, whatever it asks for', async () => {
    const { port } = wire.simulator.deployments.submissions;
    const client = await wire.connect();
    await client.send(`GET http://127.0.0.1:${port}/echo HTTP/1.0\r\nConnection: keep-alive\r\n\r\n`);
    const answer = await client.answer();
    expect([answer.status, valuesOf(answer, 'connection')]).toEqual([200, ['close']]);
    expect((await client.end()).toString()).toBe('');
  });

  test('gets a response that is marked as HTTP/1.1, as every response is', async () => {
    expect((await wire.ask('GET /echo HTTP/1.0\r\n\r\n')).version).toBe('1.1');
    expect((await wire.ask('GET /echo HTTP/1.1\r\nHost: x\r\n\r\n')).version).toBe('1.1');
  });
});

describe('a response', () => {
  const DATE = /^\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT$/;

  test('without Date gets one; another Date stays', async () => {
    const bare = await got('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok');
    expect(valuesOf(bare, 'date')).toEqual([expect.stringMatching(DATE)]);
    const dated = await got(
      'HTTP/1.1 200 OK\r\nDate: Sunday, 06-Nov-94 08:49:37 GMT\r\nContent-Length: 2\r\n\r\nok',
    );
    expect(valuesOf(dated, 'date')).toEqual(['Sunday, 06-Nov-94 08:49:37 GMT']);
  });

  test.each([
    ['206 with a unit that nobody knows', 206, 'Content-Range: pages 1-2/3', 'ok'],
    ['304 to a condition of the client', 304, 'ETag: "a"\r\nContent-Length: 5', ''],
    ['412 to a condition of the client', 412, 'ETag: "a"', 'no'],
    ['405 with its Allow', 405, 'Allow: GET, PURGE', 'no'],
    ['200 with Vary and no-transform', 200, 'Vary: *\r\nCache-Control: no-transform, private="X-A"', 'ok'],
    ['502 of another intermediary', 502, 'Retry-After: 5', 'no'],
  ])('is passed on as it is: %s', async (_what, status, lines, body) => {
    const length = status === 304 ? '' : `Content-Length: ${body.length}\r\n`;
    const answer = await got(`HTTP/1.1 ${status} X\r\n${lines}\r\n${length}\r\n${body}`);
    expect([answer.status, answer.body.toString()]).toEqual([status, body]);
    for (const line of lines.split('\r\n')) {
      const [name = '', value] = line.split(': ');
      expect(valuesOf(answer, name.toLowerCase())).toEqual([value]);
    }
    expect(valuesOf(answer, 'proxy-status')).toEqual([]);
  });

  test('loses the fields of its trailers that its Connection names', async () => {
    const answer = await got(
      'HTTP/1.1 200 OK\r\nConnection: X-Hop\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Hop: 1\r\nX-End: 2\r\n\r\n',
    );
    expect([answer.body.toString(), answer.trailers]).toEqual(['ok', [['X-End', '2']]]);
  });
});

describe('a gateway with TLS', () => {
  const secured = useRunning(async () => {
    const authority = await createTestAuthority();
    const files = await writeTlsFiles(await authority.server(), authority.ca);
    const { origin } = wire.simulator.deployments.submissions;
    const gateway = await startGateway(
      { upstream: { origin, ca: wire.simulator.ca } },
      { listen: { port: 0, tls: files.section } },
    );
    const close = async () => {
      await gateway.close();
      await files.remove();
    };
    return { port: gateway.port, ca: authority.ca, close };
  });

  test('ends a connection with close_notify', async () => {
    // Node.js does not tell whether an alert came; OpenSSL prints it.
    needPackages('openssl');
    const openssl = spawn('openssl', [
      's_client',
      '-quiet',
      '-msg',
      '-connect',
      `127.0.0.1:${secured().port}`,
    ]);
    const printed = text(openssl.stdout);
    openssl.stderr.resume();
    openssl.stdin.write('GET /echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n');
    expect(await printed).toMatch(/200 OK[\s\S]*<<< TLS 1\.3, Alert [\s\S]*close_notify/);
  });

  test('serves on after clients that close without close_notify', async () => {
    const { port, ca } = secured();
    for (const request of ['', 'GET /echo HTTP/1.1\r\nHost: x\r\n\r\n']) {
      const tcp = connectTcp(port, '127.0.0.1');
      const client = connectTls({ socket: tcp, ca });
      await once(client, 'secureConnect');
      client.on('error', () => undefined);
      if (request !== '') client.write(request);
      const closed = once(tcp, 'close');
      tcp.destroySoon();
      await closed;
      client.destroy();
    }
    const next = await connect(port, ca);
    await next.send('GET /echo HTTP/1.1\r\nHost: x\r\n\r\n');
    expect(echoOf(await next.answer()).url).toBe('/echo');
  });
});
