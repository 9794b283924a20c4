import { afterEach, describe, expect, test } from '@jest/globals';
import { auditOptions, recordsIn, useFolders } from '../../support/audit-log.ts';
import { valuesOf } from '../../support/raw-answer.ts';
import { type RunningGateway, startGateway } from '../../support/running-gateway.ts';
import { startConnections, type UpstreamConnection } from '../../support/scripted-connections.ts';
import { codeOf, useClients } from '../../support/wire.ts';

const GET = 'GET / HTTP/1.1\r\nHost: x\r\n\r\n';
const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok';
const CHALLENGE =
  'HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Digest realm="x", nonce="n", qop="auth"\r\n';

const connect = useClients();
const closing: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
});
// Hooks run in this order: folders go when nothing writes there any more.
const folder = useFolders();

/** A gateway before an upstream whose connections follow the script. */
async function start(
  script: (connection: UpstreamConnection) => Promise<void>,
  { directory, settings = {} }: { directory?: string; settings?: Record<string, unknown> } = {},
): Promise<RunningGateway> {
  const upstream = await startConnections(script);
  closing.push(() => upstream.close());
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

  test('breaks a response off of which a byte has left', async () => {
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
