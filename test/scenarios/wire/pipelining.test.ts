import type { IncomingMessage, ServerResponse } from 'node:http';
import { beforeEach, describe, expect, test } from '@jest/globals';
import { valuesOf } from '../../support/raw-answer.ts';
import { startGateway } from '../../support/running-gateway.ts';
import { startUpstream } from '../../support/scripted-upstream.ts';
import { codeOf, useClients, useRunning } from '../../support/wire.ts';

const connect = useClients();
const HOST = 'Host: x\r\n';
const get = (path: string, lines = ''): string => `GET ${path} HTTP/1.1\r\n${HOST}${lines}\r\n`;
/** Method and target of each authenticated request that the upstream got. */
const seen: string[] = [];
/** Responses to /slow that have begun. */
const slow: ServerResponse[] = [];
let onSlow: () => void = () => undefined;

function respond(req: IncomingMessage, res: ServerResponse): void {
  if (req.headers.authorization === undefined) {
    res.writeHead(401, { 'www-authenticate': 'Digest realm="r", nonce="n"' }).end();
    return;
  }
  seen.push(`${req.method} ${req.url}`);
  if (req.url === '/slow') {
    res.write('begun ');
    slow.push(res);
    onSlow();
    return;
  }
  if (req.url === '/hints') res.writeEarlyHints({ link: '</a>; rel=preload' });
  req.resume().on('end', () => res.end(req.url));
}

const scene = useRunning(async () => {
  const upstream = await startUpstream(respond);
  const settings = { tls: { allowPlaintext: true } };
  const gateway = await startGateway({ upstream: { origin: upstream.origin, settings } });
  // With a nonce at hand, no request waits for another's handshake.
  await (await fetch(gateway.origin)).text();
  const close = async () => {
    await gateway.close();
    await upstream.close();
  };
  return { gateway, close };
});

beforeEach(() => {
  seen.length = 0;
  slow.length = 0;
});

/** A client whose bytes begin with a request for /slow, of which the response has begun. */
async function behindSlow(...parts: string[]) {
  const client = await connect(scene().gateway.port);
  const begun = new Promise<void>((resolve) => {
    onSlow = resolve;
  });
  await client.send(get('/slow'), ...parts);
  await begun;
  return client;
}

describe('behind a response that is under way', () => {
  test('no request reaches the upstream', async () => {
    const client = await behindSlow(get('/a'), get('/b'));
    await client.send(get('/c'));
    await (await fetch(`${scene().gateway.origin}/other`)).text();
    expect(seen).toEqual(['GET /slow', 'GET /other']);
    slow[0]?.end('ended');
    for (const body of ['begun ended', '/a', '/b', '/c']) {
      expect((await client.answer()).body.toString()).toBe(body);
    }
    expect(seen).toEqual(['GET /slow', 'GET /other', 'GET /a', 'GET /b', 'GET /c']);
  });

  test('100 Continue of the gateway waits', async () => {
    const client = await behindSlow(
      `POST /p HTTP/1.1\r\n${HOST}Content-Length: 5\r\nExpect: 100-continue\r\n\r\n`,
    );
    slow[0]?.end('ended');
    expect((await client.answer()).body.toString()).toBe('begun ended');
    expect((await client.answer()).status).toBe(100);
    await client.send('hello');
    expect((await client.answer()).body.toString()).toBe('/p');
  });

  test('an interim response of the upstream waits', async () => {
    const client = await behindSlow(get('/hints'));
    slow[0]?.end('ended');
    expect((await client.answer()).body.toString()).toBe('begun ended');
    expect((await client.answer()).status).toBe(103);
    expect((await client.answer()).body.toString()).toBe('/hints');
  });

  test.each([
    [
      'a chunk that has no size',
      'POST /p HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n',
    ],
    ['bytes that are no request', 'nonsense\r\n\r\n'],
  ])('%s is refused in its turn, and the connection ends', async (_what, bytes) => {
    const client = await behindSlow(get('/a'), bytes, get('/smuggled'));
    slow[0]?.end('ended');
    expect((await client.answer()).body.toString()).toBe('begun ended');
    expect((await client.answer()).body.toString()).toBe('/a');
    const refused = await client.answer();
    expect([refused.status, codeOf(refused)]).toEqual([400, 'bad-request']);
    expect((await client.end()).toString()).toBe('');
    expect(seen).toEqual(['GET /slow', 'GET /a']);
  });
});

test('as many requests as a client likes are answered in order', async () => {
  const client = await connect(scene().gateway.port);
  const paths = Array.from({ length: 600 }, (_, index) => `/${index}`);
  await client.send(...paths.map((path) => get(path)));
  for (const path of paths) expect((await client.answer()).body.toString()).toBe(path);
  expect(seen).toEqual(paths.map((path) => `GET ${path}`));
});

test('requests whose bytes come one by one are answered in order', async () => {
  const client = await connect(scene().gateway.port);
  const chunked = `POST /2 HTTP/1.1\r\n${HOST}Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n0\r\nA: b\r\n\r\n`;
  for (const byte of Buffer.from(`${get('/1')}${chunked}${get('/3')}`)) await client.send(Buffer.of(byte));
  for (const path of ['/1', '/2', '/3']) expect((await client.answer()).body.toString()).toBe(path);
});

describe('a request with Upgrade is served, and is the last', () => {
  test.each([
    ['of an unknown protocol', 'Connection: upgrade\r\nUpgrade: x\r\n'],
    [
      'of h2c, as from the HttpClient of Java',
      'Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAA\r\n',
    ],
    ['of websocket', 'Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n'],
    ['that Connection does not name', 'Upgrade: h2c\r\n'],
  ])('%s', async (_what, lines) => {
    const client = await connect(scene().gateway.port);
    const smuggled = get('/smuggled');
    await client.send(
      get('/a', lines),
      `POST /b HTTP/1.1\r\n${HOST}Content-Length: ${smuggled.length}\r\n\r\n`,
    );
    await client.send(smuggled);
    const answer = await client.answer();
    expect([answer.status, answer.body.toString()]).toEqual([200, '/a']);
    expect(valuesOf(answer, 'connection')).toEqual(['close']);
    expect((await client.end()).toString()).toBe('');
    expect(seen).toEqual(['GET /a']);
  });

  test('with a body', async () => {
    const client = await connect(scene().gateway.port);
    await client.send(
      `POST /a HTTP/1.1\r\n${HOST}Connection: upgrade\r\nUpgrade: x\r\nContent-Length: 5\r\n\r\nhe`,
    );
    await client.send(`llo${get('/smuggled')}`);
    expect((await client.answer()).body.toString()).toBe('/a');
    expect((await client.end()).toString()).toBe('');
    expect(seen).toEqual(['POST /a']);
  });
});

describe('nothing is read behind a request that says close', () => {
  test.each([
    ['1.1', 'Connection: close\r\n'],
    ['1.1', 'Connection: keep-alive, close\r\n'],
    ['1.1', 'Connection: close, keep-alive\r\n'],
    ['1.1', 'Connection: keep-alive\r\nConnection: Close\r\n'],
    ['1.1', 'Connection: close\r\nConnection: keep-alive\r\n'],
    ['1.1', 'Connection: x-mine ,\tCLOSE ,y\r\n'],
    ['1.0', ''],
    ['1.0', 'Connection: keep-alive, close\r\n'],
    ['1.0', 'Connection: keep-alive\r\nConnection: close\r\n'],
  ])('HTTP/%s %j', async (version, lines) => {
    const client = await connect(scene().gateway.port);
    await client.send(`GET /a HTTP/${version}\r\n${HOST}${lines}\r\n`, get('/b'));
    const answer = await client.answer();
    expect([answer.status, answer.body.toString()]).toEqual([200, '/a']);
    expect(valuesOf(answer, 'connection')).toEqual(['close']);
    expect((await client.end()).toString()).toBe('');
    expect(seen).toEqual(['GET /a']);
  });

  test('and what looks like close is none', async () => {
    const client = await connect(scene().gateway.port);
    await client.send(get('/a', 'Connection: close-not, not-close, x\r\n'), get('/b'));
    expect((await client.answer()).body.toString()).toBe('/a');
    expect((await client.answer()).body.toString()).toBe('/b');
  });
});

test('a client that goes on sending behind its last request reads the whole response', async () => {
  const client = await connect(scene().gateway.port);
  const errors: unknown[] = [];
  client.socket.on('error', (error) => errors.push(error));
  const begun = new Promise<void>((resolve) => {
    onSlow = resolve;
  });
  await client.send(get('/slow', 'Connection: close\r\n'), Buffer.alloc(2 ** 20));
  await begun;
  let sending = true;
  const surplus = (async () => {
    while (sending) await client.send(Buffer.alloc(2 ** 16));
  })();
  slow[0]?.end(Buffer.alloc(2 ** 20));
  expect((await client.answer()).body.length).toBe('begun '.length + 2 ** 20);
  expect((await client.end()).toString()).toBe('');
  sending = false;
  await surplus;
  expect(errors).toEqual([]);
  expect(seen).toEqual(['GET /slow']);
});
