import type { IncomingMessage, ServerResponse } from 'node:http';
import { beforeEach, describe, expect, test } from '@jest/globals';
import { startGateway } from '../../support/gateway.ts';
import { createTestAuthority, writeTlsFiles } from '../../support/issued-certificates.ts';
import { type RawClient, valuesOf } from '../../support/raw-client.ts';
import { startUpstream } from '../../support/scripted-upstream.ts';
import { until } from '../../support/until.ts';
import { codeOf, connect as open, useRunning, useWire } from '../../support/wire.ts';

describe('pipelining', () => {
  const HOST = 'Host: x\r\n';
  const get = (path: string, lines = ''): string => `GET ${path} HTTP/1.1\r\n${HOST}${lines}\r\n`;
  /** Method and target of each authenticated request that the upstream got. */
  const seen: string[] = [];
  /** Responses to /slow and /late that have begun. */
  const slow: ServerResponse[] = [];
  let onSlow: () => void = () => undefined;

  /** The next request for /slow or /late reaches the upstream. */
  const slowArrived = (): Promise<void> =>
    new Promise((resolve) => {
      onSlow = resolve;
    });

  function respond(req: IncomingMessage, res: ServerResponse): void {
    if (req.headers.authorization === undefined) {
      res.writeHead(401, { 'www-authenticate': 'Digest realm="r", nonce="n"' }).end();
      return;
    }
    seen.push(`${req.method} ${req.url}`);
    if (req.url === '/slow' || req.url === '/late') {
      if (req.url === '/slow') res.write('begun ');
      slow.push(res);
      onSlow();
      return;
    }
    if (req.url === '/hints') res.writeEarlyHints({ link: '</a>; rel=preload' });
    const [, size] = /^\/bytes\/(\d+)$/.exec(req.url ?? '') ?? [];
    const content: Buffer[] = [];
    req
      .on('data', (chunk) => content.push(chunk))
      .on('end', () =>
        res.end(size === undefined ? `${req.url}${Buffer.concat(content)}` : Buffer.alloc(+size)),
      );
  }

  beforeEach(() => {
    seen.length = 0;
    slow.length = 0;
  });

  /** A gateway in front of the upstream; with TLS also what signed its certificate. */
  async function start(overTls: boolean) {
    const upstream = await startUpstream(respond);
    const settings = { tls: { allowPlaintext: true } };
    const authority = overTls ? await createTestAuthority() : undefined;
    const files = authority && (await writeTlsFiles(await authority.server(), authority.ca));
    const gateway = await startGateway(
      { upstream: { origin: upstream.origin, settings } },
      { listen: { port: 0, ...(files !== undefined && { tls: files.section }) } },
    );
    const close = async () => {
      await gateway.close();
      await upstream.close();
      await files?.remove();
    };
    return { gateway, ca: authority?.ca, close };
  }

  describe.each([
    ['TCP', false],
    ['TLS', true],
  ])('over %s', (_transport, overTls) => {
    const scene = useRunning(() => start(overTls));
    const connect = (): Promise<RawClient> => open(scene().gateway.port, scene().ca);

    /**
     * One request on a connection of its own, after which the gateway has a nonce, so that none waits for a handshake.
     */
    async function ask(path: string): Promise<void> {
      const client = await connect();
      await client.send(get(path));
      expect((await client.answer()).body.toString()).toBe(path);
    }

    /** A client whose bytes begin with a request for /slow, of which the response has begun. */
    async function behindSlow(...parts: string[]): Promise<RawClient> {
      const client = await connect();
      const arrived = slowArrived();
      await client.send(get('/slow'), ...parts);
      await arrived;
      return client;
    }

    test('answers twenty in one write, with bodies, errors and HEAD among them', async () => {
      const client = await connect();
      const kinds = [
        (n: number) => ({ request: get(`/${n}`), content: `/${n}` }),
        (n: number) => ({
          request: `POST /${n} HTTP/1.1\r\n${HOST}Content-Length: 5\r\n\r\nhello`,
          content: `/${n}hello`,
        }),
        (n: number) => ({
          request: `PUT /${n} HTTP/1.1\r\n${HOST}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n`,
          content: `/${n}hello`,
        }),
        () => ({
          request: get('http://nowhere.example/'),
          content: expect.stringContaining('no-deployment'),
        }),
        () => ({ request: `HEAD /bytes/100000 HTTP/1.1\r\n${HOST}\r\n`, content: '' }),
      ];
      const sent = [0, 1, 2, 3].flatMap((round) => kinds.map((kind, at) => kind(round * kinds.length + at)));
      await client.send(...sent.map(({ request }) => request));
      for (const { request, content } of sent) {
        const { body } = await client.answer(request.slice(0, request.indexOf(' ')));
        expect(body.toString()).toEqual(content);
      }
      expect(client.pending).toBe(0);
    });

    test('answers large ones, which cannot all be held back until their turn', async () => {
      const client = await connect();
      const sizes = [3_000_000, 5, 2_000_000, 0, 4_000_000];
      await client.send(...sizes.map((size) => get(`/bytes/${size}`)));
      for (const size of sizes) expect((await client.answer()).body.length).toBe(size);
    });

    describe('behind a response that is under way', () => {
      test.each([
        ['/slow', 'begun '],
        ['/late', ''],
      ])('no request reaches the upstream (%s)', async (path, begun) => {
        await ask('/first');
        seen.length = 0;
        const client = await connect();
        const arrived = slowArrived();
        await client.send(get(path), get('/a'), get('/b'));
        await arrived;
        await client.send(get('/c'));
        await ask('/other');
        expect(seen).toEqual([`GET ${path}`, 'GET /other']);
        slow[0]?.end('ended');
        for (const body of [`${begun}ended`, '/a', '/b', '/c']) {
          expect((await client.answer()).body.toString()).toBe(body);
        }
        expect(seen).toEqual([`GET ${path}`, 'GET /other', 'GET /a', 'GET /b', 'GET /c']);
      });

      test('a client that leaves takes back the first, and the second is never read', async () => {
        const { gateway } = scene();
        const gone = { code: 'client-closed', status: '499' };
        const closedBefore = await gateway.metric('digest_gateway_requests_total', gone);
        const loggedBefore = gateway.logged.length;
        const client = await connect();
        const arrived = slowArrived();
        await client.send(get('/late'), get('/endless'));
        await arrived;
        const left = new Promise((resolve) => slow[0]?.once('close', resolve));
        client.close();
        await left;
        await until(async () => (await gateway.metric('digest_gateway_requests_in_flight')) === 0);
        expect(await gateway.metric('digest_gateway_requests_total', gone)).toBe(closedBefore + 1);
        expect(seen).toEqual(['GET /late']);
        expect(gateway.logged.slice(loggedBefore)).toEqual([]);
      });

      test('100 Continue of the gateway waits', async () => {
        const client = await behindSlow(
          `POST /p HTTP/1.1\r\n${HOST}Content-Length: 5\r\nExpect: 100-continue\r\n\r\n`,
        );
        slow[0]?.end('ended');
        expect((await client.answer()).body.toString()).toBe('begun ended');
        expect((await client.answer()).status).toBe(100);
        await client.send('hello');
        expect((await client.answer()).body.toString()).toBe('/phello');
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
      const client = await connect();
      const paths = Array.from({ length: 600 }, (_, index) => `/${index}`);
      await client.send(...paths.map((path) => get(path)));
      for (const path of paths) expect((await client.answer()).body.toString()).toBe(path);
      expect(seen).toEqual(paths.map((path) => `GET ${path}`));
    });

    test('requests whose bytes come one by one are answered in order', async () => {
      const client = await connect();
      const chunked = `POST /2 HTTP/1.1\r\n${HOST}Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n0\r\nA: b\r\n\r\n`;
      for (const byte of Buffer.from(`${get('/1')}${chunked}${get('/3')}`))
        await client.send(Buffer.of(byte));
      for (const path of ['/1', '/2he', '/3']) expect((await client.answer()).body.toString()).toBe(path);
    });

    describe('a request with Upgrade', () => {
      const smuggled = get('/smuggled');
      const WEBSOCKET = 'Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n';

      test.each([
        ['of an unknown protocol', 'Connection: upgrade\r\nUpgrade: x\r\n'],
        [
          'of h2c, as from curl --http2 and the HttpClient of Java',
          'Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAA\r\n',
        ],
        ['of h2c that Connection does not name', 'Upgrade: h2c\r\n'],
        ['of websocket that Connection does not name', 'Connection: x-upgrade\r\nUpgrade: websocket\r\n'],
        ['of a protocol with a like name', 'Connection: upgrade\r\nUpgrade: websocket-2\r\n'],
      ])('%s is served as if it had none, and so is the next', async (_what, lines) => {
        const client = await connect();
        const next = `POST /b HTTP/1.1\r\n${HOST}Content-Length: ${smuggled.length}\r\n\r\n`;
        await client.send(get('/a', lines), next);
        await client.send(smuggled, get('/c'));
        for (const body of ['/a', `/b${smuggled}`, '/c']) {
          const answer = await client.answer();
          expect([answer.status, answer.body.toString()]).toEqual([200, body]);
        }
        expect(seen).toEqual(['GET /a', 'POST /b', 'GET /c']);
      });

      test.each([
        ['its length', `Content-Length: ${smuggled.length}\r\n\r\n${smuggled}`],
        [
          'chunks',
          `Transfer-Encoding: chunked\r\n\r\n${smuggled.length.toString(16)}\r\n${smuggled}\r\n0\r\n\r\n`,
        ],
      ])('and a body with %s is served with it', async (_framing, rest) => {
        const client = await connect();
        const post = `POST /a HTTP/1.1\r\n${HOST}Connection: upgrade\r\nUpgrade: x\r\n${rest}`;
        await client.send(post, get('/b'), post.slice(0, -5));
        await client.send(post.slice(-5), get('/c'));
        for (const body of [`/a${smuggled}`, '/b', `/a${smuggled}`, '/c']) {
          expect((await client.answer()).body.toString()).toBe(body);
        }
        expect(seen).toEqual(['POST /a', 'GET /b', 'POST /a', 'GET /c']);
      });

      test.each([
        ['websocket', WEBSOCKET],
        ['among others', 'Connection: keep-alive , UPGRADE\r\nUpgrade: h2c, WebSocket/13\r\n'],
        [
          'in several lines',
          'Connection: x\r\nConnection: upgrade\r\nUpgrade: h2c\r\nUpgrade: websocket\r\n',
        ],
      ])('of websocket gets 501 and never reaches the upstream (%s)', async (_what, lines) => {
        const client = await connect();
        await client.send(get('/a', lines), get('/b'));
        const refused = await client.answer();
        expect([refused.status, codeOf(refused)]).toEqual([501, 'upgrade-unsupported']);
        expect(valuesOf(refused, 'content-type')).toEqual(['application/problem+json']);
        expect((await client.answer()).body.toString()).toBe('/b');
        expect(seen).toEqual(['GET /b']);
      });

      test('of websocket and a body gets 501, and the body is no request', async () => {
        const client = await connect();
        const head = `POST /a HTTP/1.1\r\n${HOST}${WEBSOCKET}Content-Length: ${smuggled.length}\r\n\r\n`;
        await client.send(head, smuggled, get('/b'));
        expect((await client.answer()).status).toBe(501);
        expect((await client.answer()).body.toString()).toBe('/b');
        expect(seen).toEqual(['GET /b']);
      });

      test('of websocket with HTTP/1.0 is served as if it had none', async () => {
        const client = await connect();
        await client.send(`GET /a HTTP/1.0\r\n${HOST}${WEBSOCKET}\r\n`);
        expect((await client.answer()).body.toString()).toBe('/a');
      });

      test('of websocket gets 501 as counted and logged by its code', async () => {
        const { gateway } = scene();
        const labels = { code: 'upgrade-unsupported', status: '501' };
        const before = await gateway.metric('digest_gateway_requests_total', labels);
        const client = await connect();
        await client.send(get('/a', WEBSOCKET));
        expect((await client.answer()).status).toBe(501);
        await until(async () => (await gateway.metric('digest_gateway_requests_total', labels)) > before);
        // Clients cannot fill the log with it.
        expect(gateway.logged).toEqual([]);
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
        const client = await connect();
        await client.send(`GET /a HTTP/${version}\r\n${HOST}${lines}\r\n`, get('/b'));
        const answer = await client.answer();
        expect([answer.status, answer.body.toString()]).toEqual([200, '/a']);
        expect(valuesOf(answer, 'connection')).toEqual(['close']);
        expect((await client.end()).toString()).toBe('');
        expect(seen).toEqual(['GET /a']);
      });

      test('and what looks like close is none', async () => {
        const client = await connect();
        await client.send(get('/a', 'Connection: close-not, not-close, x\r\n'), get('/b'));
        expect((await client.answer()).body.toString()).toBe('/a');
        expect((await client.answer()).body.toString()).toBe('/b');
      });
    });

    describe('nothing is read behind a response that says close', () => {
      test('because HTTP/1.0 cannot be told its length otherwise', async () => {
        const client = await connect();
        const arrived = slowArrived();
        await client.send(`GET /slow HTTP/1.0\r\n${HOST}Connection: keep-alive\r\n\r\n`, get('/b'));
        await arrived;
        slow[0]?.end('ended');
        const answer = await client.answer();
        expect([valuesOf(answer, 'connection'), answer.body.toString()]).toEqual([['close'], 'begun ended']);
        expect((await client.end()).toString()).toBe('');
        await ask('/other');
        expect(seen).toEqual(['GET /slow', 'GET /other']);
      });

      test('because 100 Continue was asked for without a body', async () => {
        const client = await connect();
        await client.send(get('/a', 'Expect: 100-continue\r\n'), get('/b'));
        const answer = await client.answer();
        expect([valuesOf(answer, 'connection'), answer.body.toString()]).toEqual([['close'], '/a']);
        expect((await client.end()).toString()).toBe('');
        await ask('/other');
        expect(seen).toEqual(['GET /a', 'GET /other']);
      });
    });

    test('a client that goes on sending behind its last request reads the whole response', async () => {
      const client = await connect();
      const errors: unknown[] = [];
      client.socket.on('error', (error) => errors.push(error));
      const arrived = slowArrived();
      await client.send(get('/slow', 'Connection: close\r\n'), Buffer.alloc(2 ** 20));
      await arrived;
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
  });
});

describe('keep-alive', () => {
  const REQUEST = 'GET /status/204 HTTP/1.1\r\nHost: x\r\n\r\n';
  const KEPT_MS = 100;
  /** Node keeps a connection so much longer than it says. */
  const NODE_ADDS_MS = 1_000;

  const wire = useWire({
    behaviour: { testPaths: true },
    top: { listen: { port: 0, limits: { keepAliveTimeout: `${KEPT_MS}ms` } } },
  });

  /** Keeps the process, and so the gateway, from doing anything. */
  function standStill(ms: number): void {
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
  }

  test('serves a request that arrives while a busy gateway lets the keep-alive time pass', async () => {
    const client = await wire.connect();
    await client.send(REQUEST);
    expect((await client.answer()).status).toBe(204);
    void client.send(REQUEST);
    standStill(KEPT_MS + NODE_ADDS_MS + 500);
    expect((await client.answer()).status).toBe(204);
  });

  test('closes a connection on which no request comes', async () => {
    const client = await wire.connect();
    await client.send(REQUEST);
    expect((await client.answer()).status).toBe(204);
    expect((await client.end()).length).toBe(0);
  });
});
