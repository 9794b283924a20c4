import { describe, expect, test } from '@jest/globals';
import { valuesOf } from '../../support/raw-answer.ts';
import { echoOf, useClients, useReplies, useWire } from '../../support/wire.ts';

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

describe('upstream', () => {
  test('goes everything else: order, case, duplicates, empty values, bytes', async () => {
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

  test('goes nothing about the connection, the client, or its way to the gateway', async () => {
    const lines = [
      'Connection: keep-alive, X-Mine,\tx-yours',
      'X-Mine: 1',
      'X-YOURS: 2',
      'Keep-Alive: timeout=5',
      'Proxy-Connection: keep-alive',
      'TE: trailers',
      'Upgrade: h2c, websocket',
      'HTTP2-Settings: AAMAAABkAAQAAP__',
      'Authorization: Basic cmVwb3J0aW5nOmtleQ==',
      'Proxy-Authorization: Basic cmVwb3J0aW5nOmtleQ==',
      'Cookie: session=client',
      'X-Api-Key: key',
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

  test('goes one Host, one Authorization, one Cookie, and a Via: all the gateway’s own', async () => {
    const head =
      'GET /echo HTTP/1.1\r\nHost: gateway.internal\r\nAuthorization: Digest username="x"\r\nCookie: a=b\r\n';
    const { rawHeaders } = echoOf(await wire.ask(`${head}Via: 1.0 first\r\n\r\n`));
    const values = (name: string) =>
      rawHeaders.filter((_, index) => rawHeaders[index - 1]?.toLowerCase() === name && index % 2 === 1);
    expect(values('host')).toEqual([`127.0.0.1:${wire.simulator.deployments.submissions.port}`]);
    expect(values('authorization')).toEqual([expect.stringMatching(/^Digest username="demo-user", realm=/)]);
    expect(values('cookie')).toEqual([expect.stringMatching(/^SIMULATOR=/)]);
    expect(values('via')).toEqual(['1.0 first', '1.1 digest-gateway']);
  });
});

const connect = useClients();
const raw = useReplies();

/** What a client gets when the upstream answers so. */
async function got(answer: string, method = 'GET') {
  const client = await connect(raw.reply(answer));
  await client.send(`${method} / HTTP/1.1\r\nHost: x\r\nX-Request-Id: id-1\r\n\r\n`);
  return client.answer(method);
}

describe('to the client', () => {
  test('come all other headers: order, case, duplicates, empty values, bytes', async () => {
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

  test('comes nothing about the connection, the authentication, or the session of the gateway', async () => {
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
      'X-Kept: yes',
    ];
    const answer = await got(
      `HTTP/1.1 403 Forbidden\r\n${lines.join('\r\n')}\r\nContent-Length: 2\r\n\r\nno`,
    );
    const own = ['via', 'x-request-id', 'date', 'connection', 'keep-alive', 'content-length'];
    expect(answer.headers.filter(([name]) => !own.includes(name.toLowerCase()))).toEqual([['X-Kept', 'yes']]);
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
  ])('comes the reason %j as %j, and never ends the process', async (sent, received) => {
    const answer = await got(`HTTP/1.1 200 ${sent}\r\nContent-Length: 2\r\n\r\nok`);
    expect([answer.status, answer.reason, answer.body.toString()]).toEqual([200, received, 'ok']);
  });

  test('of a challenge and its answer, nothing', async () => {
    wire.simulator.reset('submissions');
    const answer = await wire.ask('GET /headers?X-Kept=yes HTTP/1.1\r\nHost: x\r\n\r\n');
    expect(wire.simulator.counts('submissions')).toMatchObject({ challenges: 1, accepted: 1 });
    const names = answer.headers.map(([name]) => name.toLowerCase());
    expect(names).toContain('x-kept');
    for (const name of ['www-authenticate', 'authentication-info', 'set-cookie'])
      expect(names).not.toContain(name);
  });
});
