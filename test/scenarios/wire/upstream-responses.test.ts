import type { IncomingMessage, ServerResponse } from 'node:http';
import { describe, expect, test } from '@jest/globals';
import { auditOptions, recordsIn, useFolders } from '../../support/audit-log.ts';
import { closedAtEnd, closing } from '../../support/closing.ts';
import { type RunningGateway, startGateway } from '../../support/gateway.ts';
import { type RawResponse, valuesOf } from '../../support/raw-client.ts';
import { startConnections, startUpstream, type UpstreamConnection } from '../../support/scripted-upstream.ts';
import { until } from '../../support/until.ts';
import { codeOf, connect, useReplies, useRunning, useWire } from '../../support/wire.ts';

const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok';
const folder = useFolders();

describe('the gateway', () => {
  const GET = 'GET / HTTP/1.1\r\nHost: x\r\n\r\n';
  const CHALLENGE =
    'HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Digest realm="x", nonce="n", qop="auth"\r\n';

  // Hooks run in this order: folders go when nothing writes there any more.

  /** A gateway before an upstream whose connections follow the script. */
  async function start(
    script: (connection: UpstreamConnection) => Promise<void>,
    { directory, settings = {} }: { directory?: string; settings?: Record<string, unknown> } = {},
  ): Promise<RunningGateway> {
    const upstream = await closedAtEnd(startConnections(script));
    const gateway = await startGateway(
      { up: { origin: upstream.origin, settings: { tls: { allowPlaintext: true }, ...settings } } },
      {},
      directory === undefined ? {} : { audit: auditOptions(directory) },
    );
    closing.push(() => gateway.close());
    return gateway;
  }

  /** Answers each first request of a connection so, and then does this. */
  const replying =
    (reply: string, after: (connection: UpstreamConnection) => void = () => {}) =>
    async (connection: UpstreamConnection): Promise<void> => {
      if ((await connection.request()) === undefined) return;
      await connection.write(reply);
      after(connection);
    };

  test('counts a refusal that finds no client any more with its status, or as a client that left', async () => {
    const gateway = await start(replying(OK), {
      directory: await folder(),
      settings: { match: { pathPrefix: '/known/' } },
    });
    const requests = (labels: Record<string, string>): Promise<number> =>
      gateway.metric('digest_gateway_requests_total', labels);
    for (let round = 1; round <= 30; round += 1) {
      const client = await connect(gateway.port);
      await client.send('GET /unknown HTTP/1.1\r\nHost: x\r\n\r\n');
      client.socket.resetAndDestroy();
      await until(async () => (await requests({})) === round);
    }
    expect((await requests({ status: '404' })) + (await requests({ status: '499' }))).toBe(30);
  });

  test('repeats a request on a new connection if the rest of an earlier response came first, and no POST', async () => {
    const gateway = await start(async (connection) => {
      await connection.request();
      await connection.write(OK);
      if ((await connection.request()) !== undefined) await connection.write('rest');
    });
    const status = async (method = 'GET'): Promise<number> =>
      (await fetch(gateway.origin, { method })).status;
    // Each connection serves its first request.
    expect([await status(), await status(), await status('POST'), await status()]).toEqual([
      200, 200, 502, 200,
    ]);
    expect(await gateway.metric('digest_gateway_retries_total', { reason: 'stale_connection' })).toBe(1);
  });

  describe.each([
    ['with', true],
    ['without', false],
  ])('%s an audit log', (_with, audited) => {
    const options = async () => (audited ? { directory: await folder() } : {});

    test('answers 502 when the upstream closes after the head, before the first byte of the body', async () => {
      const reply = 'HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n';
      const gateway = await start(
        replying(reply, (connection) => connection.end()),
        await options(),
      );
      const client = await connect(gateway.port);
      for (let round = 0; round < 2; round += 1) {
        await client.send(GET);
        const answer = await client.answer();
        expect([answer.status, codeOf(answer)]).toEqual([502, 'upstream-unreachable']);
      }
      expect(await gateway.metric('digest_gateway_requests_total', { code: 'upstream-unreachable' })).toBe(2);
    });

    test('breaks a response off if a byte of it has left', async () => {
      const seen = Promise.withResolvers<void>();
      const gateway = await start(
        async (connection) => {
          await connection.request();
          await connection.write('HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nx');
          await seen.promise;
          connection.end();
        },
        await options(),
      );
      const client = await connect(gateway.port);
      client.socket.once('data', () => seen.resolve());
      await client.send(GET);
      const received = (await client.end()).toString();
      expect(received).toMatch(/^HTTP\/1\.1 200 OK\r\n/);
      expect(received).toMatch(/\r\n\r\nx$/);
    });

    test('passes on what has come of a response that breaks off at once, or 502 in its place', async () => {
      const reply = 'HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nxy';
      const gateway = await start(
        replying(reply, (connection) => connection.end()),
        await options(),
      );
      for (let round = 0; round < 20; round += 1) {
        const client = await connect(gateway.port);
        await client.send(GET.replace('\r\n\r\n', '\r\nConnection: close\r\n\r\n'));
        const received = (await client.end()).toString();
        expect(received).toMatch(/^HTTP\/1\.1 (?:200 OK\r\n.*\r\n\r\nxy$|502 )/s);
      }
    });

    test('sends the head of a stream before its first event', async () => {
      const head = 'HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n';
      const seen = Promise.withResolvers<void>();
      const gateway = await start(
        async (connection) => {
          await connection.request();
          await connection.write(head);
          await seen.promise;
          await connection.write('9\r\ndata: 1\n\n\r\n0\r\n\r\n');
        },
        await options(),
      );
      const response = await fetch(`${gateway.origin}/`);
      expect(response.headers.get('content-type')).toBe('text/event-stream');
      seen.resolve();
      expect(await response.text()).toBe('data: 1\n\n');
    });

    test('breaks off a response that ends with its connection when that is reset', async () => {
      const seen = Promise.withResolvers<void>();
      const gateway = await start(
        async (connection) => {
          await connection.request();
          await connection.write('HTTP/1.1 200 OK\r\n\r\nsome of it');
          await seen.promise;
          connection.reset();
        },
        await options(),
      );
      const response = await fetch(`${gateway.origin}/`);
      const reader = response.body?.getReader();
      expect(Buffer.from((await reader?.read())?.value ?? '').toString()).toBe('some of it');
      seen.resolve();
      await expect(reader?.read()).rejects.toThrow();
    });

    test('passes on a phrase with bytes above 7F as it is, and none with control characters', async () => {
      for (const [sent, received] of [
        ['Tr\xe8s bien', 'Tr\xe8s bien'],
        ['O\x1bK', ''],
        ['\x7f', ''],
      ]) {
        const gateway = await start(
          replying(`HTTP/1.1 200 ${sent}\r\nContent-Length: 2\r\n\r\nok`),
          await options(),
        );
        const client = await connect(gateway.port);
        await client.send(GET);
        const { status, reason, body } = await client.answer();
        expect([status, reason, body.toString()]).toEqual([200, received, 'ok']);
      }
    });

    test.each([
      ['204', 'HTTP/1.1 204 No Content\r\nContent-Length: 5\r\nX-Kept: 1\r\n\r\n', [204]],
      [
        'an interim response',
        `HTTP/1.1 103 Early Hints\r\nContent-Length: 5\r\nX-Kept: 1\r\n\r\n${OK}`,
        [103, 200],
      ],
      [
        'both',
        'HTTP/1.1 102 Processing\r\nContent-Length: 9\r\nX-Kept: 1\r\n\r\nHTTP/1.1 204 No Content\r\nContent-Length: 9\r\nX-Kept: 1\r\n\r\n',
        [102, 204],
      ],
    ])('passes on %s without the Content-Length that it must not have', async (_what, reply, statuses) => {
      const gateway = await start(
        async (connection) => {
          while ((await connection.request()) !== undefined) await connection.write(reply);
        },
        await options(),
      );
      const client = await connect(gateway.port);
      // A client that believed the length would read the next response as content.
      await client.send(GET, GET);
      for (const status of [...statuses, ...statuses]) {
        const answer = await client.answer();
        expect(answer.status).toBe(status);
        if (status === 200) continue;
        expect([valuesOf(answer, 'content-length'), valuesOf(answer, 'x-kept')]).toEqual([[], ['1']]);
      }
    });

    test('refuses more interim responses than 64, and passes on at most those', async () => {
      const hints = 'HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\n'.repeat(60_000);
      const gateway = await start(replying(`${hints}${OK}`), await options());
      const client = await connect(gateway.port);
      await client.send(GET);
      let answer = await client.answer();
      let interim = 0;
      for (; answer.status === 103; interim += 1) answer = await client.answer();
      expect([answer.status, codeOf(answer)]).toEqual([502, 'upstream-protocol']);
      expect(interim).toBeLessThanOrEqual(64);
    });
  });

  describe('a head of the upstream', () => {
    const LIMIT = 32 * 1024;
    const START = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n';
    const filled = (size: number): string => {
      const rest = size - `${START}A: \r\n\r\n`.length;
      return `${START}A: ${'a'.repeat(rest)}\r\n\r\n`;
    };
    const lines = (count: number): string => `${START}${'a:\r\n'.repeat(count)}\r\n`;

    test.each([
      ['of 32 KiB', filled(LIMIT), 1],
      ['of 8,000 lines', lines(8_000), 8_000],
    ])('%s is passed on', async (_size, head, count) => {
      const gateway = await start(replying(`${head}ok`));
      const client = await connect(gateway.port);
      await client.send(GET);
      const answer = await client.answer();
      expect([answer.status, answer.body.toString()]).toEqual([200, 'ok']);
      expect(answer.headers.filter(([name]) => name.toLowerCase() === 'a')).toHaveLength(count);
    });

    test.each([
      ['of one byte more than 32 KiB', `${filled(LIMIT + 1)}ok`],
      ['of 16,000 lines', `${lines(16_000)}ok`],
      ['that does not end', `${START}A: ${'a'.repeat(1_000_000)}`],
    ])('%s is 502 upstream-protocol at once', async (_size, reply) => {
      const settings = { timeouts: { response: '60s', idle: '60s', total: '60s' } };
      const gateway = await start(replying(reply), { settings });
      const client = await connect(gateway.port);
      await client.send(GET);
      const answer = await client.answer();
      expect([answer.status, codeOf(answer)]).toEqual([502, 'upstream-protocol']);
      expect(answer.body.toString()).toContain(`${LIMIT} bytes`);
    });
  });

  test('records that a response was replaced: what the upstream said, and what the client got', async () => {
    const directory = await folder();
    const reply = 'HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n';
    const gateway = await start(
      replying(reply, (connection) => connection.end()),
      { directory },
    );
    await fetch(`${gateway.origin}/`);
    await gateway.close();
    const records = await recordsIn(directory);
    expect(records.find(({ kind }) => kind === 'access')).toMatchObject({ status: 200 });
    expect(records.find(({ kind }) => kind === 'outcome')).toMatchObject({
      status: 502,
      code: 'upstream-unreachable',
    });
  });

  describe('a 401 whose body', () => {
    const challenging =
      (body: string, after: (connection: UpstreamConnection) => void = () => {}) =>
      async (connection: UpstreamConnection): Promise<void> => {
        for (let head = await connection.request(); head !== undefined; head = await connection.request()) {
          const signed = /^authorization: digest /im.test(head);
          await connection.write(signed ? OK : `${CHALLENGE}${body}`);
          if (!signed) after(connection);
        }
      };

    test.each([
      ['never ends', challenging('Content-Length: 1000\r\n\r\nno')],
      ['does not even begin', challenging('Content-Length: 1000\r\n\r\n')],
      ['is too long', challenging(`Content-Length: 1000000\r\n\r\n${'no'.repeat(100_000)}`)],
      ['ends early', challenging('Content-Length: 1000\r\n\r\nno', (connection) => connection.end())],
      ['is malformed', challenging('Transfer-Encoding: chunked\r\n\r\nno chunk\r\n')],
    ])('%s costs the client nothing but its connection', async (_what, script) => {
      const settings = { timeouts: { response: '20s', idle: '20s', total: '40s' } };
      const gateway = await start(script, { settings });
      const response = await fetch(`${gateway.origin}/`);
      expect([response.status, await response.text()]).toEqual([200, 'ok']);
      const attempts = 'digest_gateway_upstream_attempts_total';
      expect(await gateway.metric(attempts, { result: 'challenged' })).toBe(1);
      expect(await gateway.metric(attempts, { result: 'error' })).toBe(0);
    });
  });
});

describe('the client gets', () => {
  const wire = useWire();
  const raw = useReplies();

  /** Every answer to one request, the interim ones too. */
  async function answers(answer: string, version = '1.1', method = 'GET'): Promise<RawResponse[]> {
    const client = await connect(raw.reply(answer));
    await client.send(`${method} / HTTP/${version}\r\nHost: x\r\n\r\n`);
    const all: RawResponse[] = [];
    do all.push(await client.answer(method));
    while ((all.at(-1)?.status ?? 0) < 200);
    return all;
  }

  describe('interim responses:', () => {
    test('103 of the service, after the challenge', async () => {
      const client = await wire.connect();
      await client.send('GET /early-hints HTTP/1.1\r\nHost: x\r\n\r\n');
      const early = await client.answer();
      expect([early.status, valuesOf(early, 'link')]).toEqual([103, ['</style.css>; rel=preload']]);
      const last = await client.answer();
      expect([last.status, last.body.toString()]).toEqual([200, 'after 103\n']);
    });

    test('several, each with all header lines except those for the gateway', async () => {
      const interim = [
        'HTTP/1.1 102 Processing\r\n\r\n',
        'HTTP/1.1 103 Early Hints\r\nLink: <a>; rel=preload\r\nX-L: caf\xe9\r\nSet-Cookie: a=b\r\n',
        'Link: <b>; rel=preload\r\nConnection: X-Mine\r\nX-Mine: 1\r\n\r\n',
      ];
      const [processing, early, last] = await answers(`${interim.join('')}${OK}`);
      expect(processing).toMatchObject({ status: 102, headers: [] });
      expect(early).toMatchObject({
        status: 103,
        headers: [
          ['Link', '<a>; rel=preload'],
          ['X-L', 'caf\xe9'],
          ['Link', '<b>; rel=preload'],
        ],
      });
      expect(last).toMatchObject({ status: 200 });
    });

    test('none with HTTP/1.0', async () => {
      const all = await answers(`HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n${OK}`, '1.0');
      expect(all.map(({ status }) => status)).toEqual([200]);
    });

    test('before the response to HEAD and before one without a body', async () => {
      const early = 'HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n';
      for (const [method, last] of [
        ['HEAD', 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n'],
        ['GET', 'HTTP/1.1 204 No Content\r\n\r\n'],
      ] as const) {
        const all = await answers(`${early}${last}`, '1.1', method);
        expect(all.map(({ status }) => status)).toEqual([103, last.includes('204') ? 204 : 200]);
      }
    });

    test('never 101, which was not asked for', async () => {
      const [answer] = await answers('HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n');
      expect(answer?.status).toBe(502);
    });
  });

  describe('trailers:', () => {
    const chunked = 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-C\r\n\r\n2\r\nok\r\n0\r\n';

    test('all their lines except those for the gateway', async () => {
      const lines =
        'X-C: 1\r\nX-Latin: caf\xe9\r\nx-c: 2\r\nSet-Cookie: a=b\r\nAuthentication-Info: nextnonce="x"\r\n';
      const [answer] = await answers(`${chunked}${lines}\r\n`);
      expect(answer?.body.toString()).toBe('ok');
      expect(answer?.trailers).toEqual([
        ['X-C', '1'],
        ['X-Latin', 'caf\xe9'],
        ['x-c', '2'],
      ]);
    });

    test('none with HTTP/1.0', async () => {
      const [answer] = await answers(`${chunked}X-C: 1\r\n\r\n`, '1.0');
      expect([answer?.body.toString(), answer?.trailers]).toEqual(['ok', []]);
    });
  });

  describe('a response that ends with its connection', () => {
    test.each(['1.1', '1.0'])('in chunks, from HTTP/%s', async (version) => {
      const [answer] = await answers(`HTTP/${version} 200 OK\r\nConnection: close\r\n\r\nto the end`);
      expect([answer?.status, answer?.body.toString()]).toEqual([200, 'to the end']);
    });
  });

  test.each(['1.1', '1.0'])('Via with the version of the upstream: HTTP/%s', async (version) => {
    const [answer] = await answers(`HTTP/${version} 200 OK\r\nVia: 1.1 other\r\nContent-Length: 2\r\n\r\nok`);
    expect(answer && valuesOf(answer, 'via')).toEqual(['1.1 other', `${version} digest-gateway`]);
  });

  test('no length, chunks or trailers for HEAD of a chunked response', async () => {
    const head = 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-C\r\n\r\n';
    const [answer] = await answers(head, '1.1', 'HEAD');
    expect([answer?.status, answer?.body.length]).toEqual([200, 0]);
    const names = answer?.headers.map(([name]) => name.toLowerCase());
    expect(names).not.toContain('content-length');
    expect(names).not.toContain('trailer');
  });

  describe('502 for a response with ambiguous framing:', () => {
    test.each([
      [
        'length and chunks',
        'HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n',
      ],
      ['two lengths', 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok'],
      ['a header name with a space', 'HTTP/1.1 200 OK\r\nA b: c\r\nContent-Length: 2\r\n\r\nok'],
      ['a continued header', 'HTTP/1.1 200 OK\r\nA: b\r\n c\r\nContent-Length: 2\r\n\r\nok'],
      ['NUL in a header', 'HTTP/1.1 200 OK\r\nA: b\x00c\r\nContent-Length: 2\r\n\r\nok'],
      [
        'a coding that the client does not hear of',
        'HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n',
      ],
      ['no HTTP', 'nonsense\r\n\r\n'],
    ])('%s', async (_what, bytes) => {
      const [answer] = await answers(bytes);
      expect(answer === undefined ? undefined : [answer.status, codeOf(answer)]).toEqual([
        502,
        'upstream-protocol',
      ]);
    });
  });
});

describe('a response before the end of the request body', () => {
  const LENGTH = 20_000_000;
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

    test('of which a part has come: the client has the response', async () => {
      answerTo = refuse;
      const client = await connect(scene().gateway.port);
      await client.send(head, bytes.subarray(0, 2_000_000));
      const answer = await client.answer();
      expect([answer.status, answer.body.toString()]).toEqual([403, 'not you']);
    });

    test('that comes whole: the connection serves the next request', async () => {
      answerTo = refuse;
      const client = await connect(scene().gateway.port);
      const sent = client.send(head, bytes);
      expect((await client.answer()).status).toBe(403);
      await sent;
      answerTo = (_req, res) => res.end('next');
      await client.send('GET / HTTP/1.1\r\nHost: x\r\n\r\n');
      expect((await client.answer()).body.toString()).toBe('next');
    });

    test('while the response is being sent: both continue', async () => {
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

  test('ends the connection if the body never comes whole', async () => {
    answerTo = refuse;
    const client = await connect(scene().gateway.port);
    await client.send(
      `POST / HTTP/1.1\r\nHost: x\r\nContent-Length: ${LENGTH}\r\n\r\n`,
      Buffer.alloc(2_000_000),
    );
    expect((await client.answer()).status).toBe(403);
    expect((await client.end()).toString()).toBe('');
  });

  test('loses no connection to the upstream if it happens repeatedly', async () => {
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
});
