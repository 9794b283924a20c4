import { describe, expect, test } from '@jest/globals';
import { type RawResponse, valuesOf } from '../../support/raw-client.ts';
import { connect, echoOf, useReplies, useWire } from '../../support/wire.ts';

describe('header lines', () => {
  const wire = useWire({
    behaviour: { rspauth: 'right', nextnonce: 'always', qop: 'auth', requireCookie: true },
  });

  /** Headers that the upstream saw when a client sent these lines, less what every request has. */
  async function seen(...lines: string[]): Promise<(readonly [string, string])[]> {
    const answer = await wire.ask(`GET /echo HTTP/1.1\r\n${['Host: x', ...lines].join('\r\n')}\r\n\r\n`);
    const { rawHeaders } = echoOf(answer);
    const pairs = rawHeaders.flatMap((name, index) =>
      index % 2 === 0 ? [[name, rawHeaders[index + 1] ?? ''] as const] : [],
    );
    return pairs.filter(([name]) => !['host', 'connection', 'via', 'authorization', 'cookie'].includes(name));
  }

  describe('of a request:', () => {
    test('all others reach the upstream with order, case, duplicates, empty values and bytes', async () => {
      const lines = [
        'X-b: 2',
        'ACCEPT: */*',
        'x-B: 1',
        'Empty:',
        'X-Latin: caf\xe9 \xff',
        'X-B: 3',
        'X-Tab: a\tb',
      ];
      expect(await seen(...lines)).toEqual([
        ['X-b', '2'],
        ['ACCEPT', '*/*'],
        ['x-B', '1'],
        ['Empty', ''],
        ['X-Latin', 'caf\xe9 \xff'],
        ['X-B', '3'],
        ['X-Tab', 'a\tb'],
      ]);
    });

    test('none about the connection, the client, or its way to the gateway reaches the upstream', async () => {
      const lines = [
        'Connection: keep-alive, X-Mine,\tx-yours',
        'X-Mine: 1',
        'X-YOURS: 2',
        'Keep-Alive: timeout=5',
        'Proxy-Connection: keep-alive',
        'TE: trailers',
        'Upgrade: h2c, websocket',
        'HTTP2-Settings: AAMAAABkAAQAAP__',
        'Authorization: Digest username="reporting"',
        'Proxy-Authorization: Bearer abc',
        'Cookie: session=client',
        'Forwarded: for=10.0.0.1',
        'X-Forwarded-For: 10.0.0.1',
        'X-Forwarded-Proto: https',
        'X-Real-IP: 10.0.0.1',
        'X-Kept: yes',
      ];
      expect(await seen(...lines)).toEqual([
        ['HTTP2-Settings', 'AAMAAABkAAQAAP__'],
        ['X-Kept', 'yes'],
      ]);
    });

    test('the gateway sends its own Host, Authorization, Cookie and Via', async () => {
      const head =
        'GET /echo HTTP/1.1\r\nHost: gateway.internal\r\nAuthorization: Digest username="x"\r\nCookie: a=b\r\n';
      const { rawHeaders } = echoOf(await wire.ask(`${head}Via: 1.0 first\r\n\r\n`));
      const values = (name: string) =>
        rawHeaders.filter((_, index) => rawHeaders[index - 1]?.toLowerCase() === name && index % 2 === 1);
      expect(values('host')).toEqual([`127.0.0.1:${wire.simulator.deployments.submissions.port}`]);
      expect(values('authorization')).toEqual([
        expect.stringMatching(/^Digest username="demo-user", realm=/),
      ]);
      expect(values('cookie')).toEqual([expect.stringMatching(/^SIMULATOR=/)]);
      expect(values('via')).toEqual(['1.0 client-side, 1.1 digest-gateway']);
    });
  });

  const raw = useReplies();

  /** The client's response when the upstream responds like this. */
  async function got(answer: string, method = 'GET') {
    const client = await connect(raw.reply(answer));
    await client.send(`${method} / HTTP/1.1\r\nHost: x\r\nX-Request-Id: id-1\r\n\r\n`);
    return client.answer(method);
  }

  describe('of a response:', () => {
    test('all others reach the client with order, case, duplicates, empty values and bytes', async () => {
      const lines = [
        'Date: Thu, 01 Jan 2026 00:00:00 GMT',
        'X-b: 2',
        'CONTENT-type: text/plain',
        'x-B: caf\xe9 \xff',
        'Empty:',
        'Content-Disposition: attachment; filename="caf\xe9.pdf"',
        'Content-Length: 2',
        'Age: 1',
        'Age: 2',
        'Via: 1.1 upstream',
      ];
      const answer = await got(`HTTP/1.1 200 OK\r\n${lines.join('\r\n')}\r\n\r\nok`);
      expect(answer.headers.slice(0, lines.length).map((pair) => pair.join(': ').trimEnd())).toEqual(lines);
      expect(answer.headers.slice(lines.length)).toEqual([
        ['via', '1.1 digest-gateway'],
        ['x-request-id', 'id-1'],
        ['Connection', 'keep-alive'],
        ['Keep-Alive', expect.stringMatching(/^timeout=\d+$/)],
      ]);
    });

    test('none about the connection, the authentication, or the session of the gateway reaches the client', async () => {
      const lines = [
        'Connection: X-Mine, close',
        'X-Mine: 1',
        'Keep-Alive: timeout=77',
        'Proxy-Authenticate: Basic',
        'Upgrade: h2c',
        'WWW-Authenticate: Basic realm="x"',
        'Authentication-Info: nextnonce="abc"',
        'Set-Cookie: session=gateway',
        'set-cookie: other=gateway',
        'X-Request-Id: of-the-upstream',
        'Strict-Transport-Security: max-age=63072000; includeSubDomains',
        'Clear-Site-Data: "*"',
        'NEL: {"report_to":"x"}',
        'Report-To: {"group":"x"}',
        'Reporting-Endpoints: x="https://evil.example/"',
        'Alt-Svc: h3=":443"',
        'Service-Worker-Allowed: /',
        'Origin-Agent-Cluster: ?1',
        'Proxy-Status: digest-gateway; error=dns_error',
        'CDN-Cache-Control: public, max-age=600',
        'Akamai-Cache-Control: public, max-age=600',
        'Edge-Cache-Control: public, max-age=600',
        'Fastly-Cache-Control: public, max-age=600',
        'Netlify-CDN-Cache-Control: public, max-age=600',
        'Vercel-CDN-Cache-Control: public, max-age=600',
        'X-Kept: yes',
      ];
      const answer = await got(
        `HTTP/1.1 403 Forbidden\r\n${lines.join('\r\n')}\r\nContent-Length: 2\r\n\r\nno`,
      );
      const own = ['via', 'x-request-id', 'date', 'connection', 'keep-alive', 'content-length'];
      expect(answer.headers.filter(([name]) => !own.includes(name.toLowerCase()))).toEqual([
        ['X-Kept', 'yes'],
      ]);
      expect(valuesOf(answer, 'x-request-id')).toEqual(['id-1']);
      expect(valuesOf(answer, 'keep-alive')).not.toContain('timeout=77');
      expect([answer.status, answer.body.toString()]).toEqual([403, 'no']);
    });

    test.each([
      ['Tr\xe8s bien', 'Tr\xe8s bien'],
      ['Tr\xc3\xa8s bien', 'Tr\xc3\xa8s bien'],
      ['\xe4\xb8\xad', '\xe4\xb8\xad'],
      ['\x80\xff', '\x80\xff'],
      ['tab\there', 'tab\there'],
      ['', ''],
      ['O\x1bK', ''],
      ['O\x00K', ''],
      ['OK\x7f', ''],
    ])('the reason phrase %j becomes %j and never ends the process', async (sent, received) => {
      const answer = await got(`HTTP/1.1 200 ${sent}\r\nContent-Length: 2\r\n\r\nok`);
      expect([answer.status, answer.reason, answer.body.toString()]).toEqual([200, received, 'ok']);
    });

    test('nothing of a challenge and its response reaches the client', async () => {
      wire.simulator.reset('submissions');
      const answer = await wire.ask('GET /headers?X-Kept=yes HTTP/1.1\r\nHost: x\r\n\r\n');
      expect(wire.simulator.counts('submissions')).toMatchObject({ challenges: 1, accepted: 1 });
      const names = answer.headers.map(([name]) => name.toLowerCase());
      expect(names).toContain('x-kept');
      for (const name of ['www-authenticate', 'authentication-info', 'set-cookie'])
        expect(names).not.toContain(name);
    });
  });
});

describe('with passOriginFields', () => {
  const wire = useWire({ settings: { passOriginFields: ['strict-transport-security', 'proxy-status'] } });

  test('the fields that it names reach the client, and no other that speaks for an origin', async () => {
    const answer = await wire.ask(
      'GET /headers?Strict-Transport-Security=max-age%3D1&Proxy-Status=other&Alt-Svc=clear HTTP/1.1\r\nHost: x\r\n\r\n',
    );
    expect(valuesOf(answer, 'strict-transport-security')).toEqual(['max-age=1']);
    expect(valuesOf(answer, 'proxy-status')).toEqual(['other']);
    expect(valuesOf(answer, 'alt-svc')).toEqual([]);
  });
});

describe('the gateway', () => {
  const wire = useWire();

  test.each([
    'Cookie2: $Version=1',
    'True-Client-IP: 10.0.0.1',
    'CF-Connecting-IP: 10.0.0.1',
    'X-Client-IP: 10.0.0.1',
    'X-Original-Forwarded-For: 10.0.0.1',
    'X_Forwarded_For: 10.0.0.1',
    'X_Real-IP: 10.0.0.1',
    'True_Client_IP: 10.0.0.1',
    'X_Api_Key: hunter2',
    'Proxy_Authorization: Basic aHVudGVyMg==',
    'Content_Length: 5',
    'Transfer_Encoding: chunked',
  ])('does not pass %s on', async (header) => {
    const answer = await wire.ask(`GET /echo HTTP/1.1\r\nHost: x\r\nX_Mine: 1\r\n${header}\r\n\r\n`);
    const names = echoOf(answer).rawHeaders.filter((_, index) => index % 2 === 0);
    expect(names).toContain('X_Mine');
    expect(names).not.toContain(header.split(':')[0]);
  });
});

describe('the request id', () => {
  const wire = useWire({ settings: { body: { replayUpTo: 8, max: 16 } } });
  const UUID = /^[\da-f-]{36}$/;

  describe.each([
    ['GET /echo HTTP/1.1\r\nHost: x\r\n', 200, undefined],
    ['GET /echo HTTP/1.0\r\n', 200, undefined],
    ['GET /echo HTTP/1.1\r\nHost: x\r\nExpect: magic\r\n', 200, undefined],
    ['GET /nothing HTTP/1.1\r\nHost: x\r\n', 404, undefined],
    ['GET http://nowhere.example/ HTTP/1.1\r\nHost: x\r\n', 404, 'no-deployment'],
    ['HEAD http://nowhere.example/ HTTP/1.1\r\nHost: x\r\n', 404, 'no-deployment'],
    ['POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 17\r\n', 413, 'body-too-large'],
    [
      'POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 17\r\nExpect: 100-continue\r\n',
      413,
      'body-too-large',
    ],
    ['OPTIONS * HTTP/1.1\r\nHost: x\r\n', 400, 'bad-request'],
    ['GET /echo HTTP/1.1\r\n', 400, 'bad-request'],
    ['GET /echo HTTP/1.1\r\nHost: x\r\nHost: y\r\n', 400, 'bad-request'],
    ['POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n', 400, 'bad-request'],
    [
      'POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n',
      400,
      'bad-request',
    ],
    ['POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n', 501, 'not-implemented'],
    ['PROPFOO /echo HTTP/1.1\r\nHost: x\r\n', 501, 'not-implemented'],
    ['CONNECT upstream.example:443 HTTP/1.1\r\nHost: x\r\n', 405, 'connect-unsupported'],
  ] as const)('in the response to %j', (head, status, code) => {
    test('is the one that the client sent', async () => {
      const answer = await wire.ask(`${head}X-Request-Id: of-the-client.1\r\n\r\n`);
      expect(valuesOf(answer, 'x-request-id')).toEqual(['of-the-client.1']);
      expectKind(answer, head, status, code);
    });

    test.each(['', 'X-Request-Id: a b\r\n', 'X-Request-Id: a\r\nX-Request-Id: b\r\n'])(
      'has one of the gateway when the client sent %j',
      async (line) => {
        const answer = await wire.ask(`${head}${line}\r\n`);
        expect(valuesOf(answer, 'x-request-id')).toEqual([expect.stringMatching(UUID)]);
        expectKind(answer, head, status, code);
      },
    );
  });

  /** Only a refusal of the gateway itself is a problem, and names the id in its body too. */
  function expectKind(answer: RawResponse, head: string, status: number, code: string | undefined): void {
    expect(answer.status).toBe(status);
    expect(valuesOf(answer, 'proxy-status')).toHaveLength(code === undefined ? 0 : 1);
    if (code === undefined || head.startsWith('HEAD')) return;
    const [requestId] = valuesOf(answer, 'x-request-id');
    expect(JSON.parse(answer.body.toString())).toMatchObject({ status, code, requestId });
  }
});
