import { describe, expect, test } from '@jest/globals';
import type { UpstreamConnection } from '../support/scripted-upstream.ts';
import { useExchanges } from './exchanges.ts';

const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok';

const scene = useExchanges();

/** Answers the first request of each connection with these bytes, and then goes on with it; later ones with `OK`. */
function firstly(reply: string, { trickled = false, after = (_connection: UpstreamConnection) => {} } = {}) {
  return async (connection: UpstreamConnection): Promise<void> => {
    if ((await connection.request()) === undefined) return;
    await (trickled ? connection.trickle(reply) : connection.write(reply));
    after(connection);
    while ((await connection.request()) !== undefined) await connection.write(OK);
  };
}

describe('a fresh connection', () => {
  const nth = async (connection: UpstreamConnection): Promise<void> => {
    while ((await connection.request()) !== undefined) {
      const number = String(connection.number);
      await connection.write(`HTTP/1.1 200 OK\r\nContent-Length: ${number.length}\r\n\r\n${number}`);
    }
  };

  test('takes the place of one that is open, and stays', async () => {
    const { send, upstream } = await scene(nth);
    const bodies = [];
    for (const freshConnection of [false, false, true, false, true]) {
      bodies.push((await send({ freshConnection })).body);
    }
    expect(bodies).toEqual(['1', '1', '2', '2', '3']);
    expect(upstream.count).toBe(3);
  });

  test('is no more than the connections that there may be, however many ask for one', async () => {
    const { send, connections } = await scene(nth, { connections: 2 });
    await Promise.all([send(), send()]);
    const sent = Array.from({ length: 10 }, () => send({ freshConnection: true }));
    const open = connections.stats.connected;
    const bodies = (await Promise.all(sent)).map(({ kind, body }) => `${kind} ${Number(body) > 2}`);
    expect(bodies).toEqual(Array.from({ length: 10 }, () => 'answered true'));
    expect(open).toBeLessThanOrEqual(2);
  });
});

describe.each([
  ['in one packet', false],
  ['byte by byte', true],
])('a head that comes %s:', (_how, trickled) => {
  test.each([
    ['HTTP/1.1 200 OK', '200 OK'],
    ['HTTP/1.0 200 OK', '200 OK'],
    ['HTTP/1.1 200', '200 '],
    ['HTTP/1.1 200 ', '200 '],
    ['HTTP/1.1 299 Not A Usual One', '299 Not A Usual One'],
    ['HTTP/1.1 404 Gar nichts', '404 Gar nichts'],
    ['HTTP/1.1 200 Tr\xe8s bien', '200 Tr\xe8s bien'],
    ['HTTP/1.1 200 Tr\xc3\xa8s', '200 Tr\xc3\xa8s'],
    ['HTTP/1.1 200 O\x1bK', '200 '],
    // Its client takes it for a 500 (RFC 9110 §15).
    ['HTTP/1.1 999 Request denied', '999 Request denied'],
  ])('%j is passed on as %j', async (line, expected) => {
    const { send } = await scene(firstly(`${line}\r\nContent-Length: 2\r\n\r\nok`, { trickled }));
    expect(await send()).toEqual({ kind: 'answered', responses: [expected], body: 'ok', trailers: [] });
  });

  test.each([
    'HTTP/1.1 000 Zero',
    'HTTP/1.1 099 Low',
    'HTTP/1.1 101 Switching Protocols',
    'HTTP/1.1 20 Short',
    'HTTP/1.1 2000 Long',
    'HTTP/1.1 200OK',
    'HTTP/0.9 200 OK',
    'HTTP/1.2 200 OK',
    'HTTP/2.0 200 OK',
    'HTTP/11 200 OK',
    'ICE/1.0 200 OK',
    'RTSP/1.0 200 OK',
    'http/1.1 200 OK',
    ' HTTP/1.1 200 OK',
    '\r\nHTTP/1.1 200 OK',
    'HTTP/1.1 200 OK\nX: y',
    'HTTP/1.1 200 O\rK',
    '<html>',
  ])('%j is upstream-protocol, and the connection is not used again', async (line) => {
    const { send, upstream } = await scene(firstly(`${line}\r\nContent-Length: 2\r\n\r\nok`, { trickled }));
    expect(await send()).toEqual({ kind: 'upstream-protocol', responses: [], body: '', trailers: [] });
    await send();
    expect(upstream.count).toBe(2);
  });

  test('lines that end without CR are upstream-protocol at once', async () => {
    const { send } = await scene(firstly('HTTP/1.1 200 OK\nContent-Length: 2\n\nok', { trickled }));
    expect(await send()).toMatchObject({ kind: 'upstream-protocol', responses: [] });
  });

  test('100 (Continue) that nobody asked for is swallowed, others are passed on', async () => {
    const interim = 'HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n';
    const { send, upstream } = await scene(firstly(`${interim}${interim}${OK}`, { trickled }));
    const { kind, responses, body } = await send();
    expect([kind, responses, body]).toEqual(['answered', ['103', '103', '200 OK'], 'ok']);
    expect((await send()).responses).toEqual(['200 OK']);
    expect(upstream.count).toBe(1);
  });

  test('a head above 32 KiB is upstream-protocol', async () => {
    const end = 'a'.repeat(1_000);
    const { send } = await scene(async (connection) => {
      if ((await connection.request()) === undefined) return;
      await connection.write(`HTTP/1.1 200 ${'a'.repeat(32_000)}`);
      await (trickled ? connection.trickle(end) : connection.write(end));
    });
    expect((await send()).kind).toBe('upstream-protocol');
  });
});

describe('interim responses', () => {
  const hint = (size: number): string => `HTTP/1.1 103 Early Hints\r\nLink: ${'a'.repeat(size)}\r\n\r\n`;

  test.each([
    ['64 of them', hint(10).repeat(64), 'answered'],
    ['65 of them', hint(10).repeat(65), 'upstream-protocol'],
    ['65 of 100 (Continue)', 'HTTP/1.1 100 Continue\r\n\r\n'.repeat(65), 'upstream-protocol'],
    ['60 KiB of them', hint(20 * 1024).repeat(3), 'answered'],
    ['80 KiB of them', hint(20 * 1024).repeat(4), 'upstream-protocol'],
  ])('%s', async (_what, interim, expected) => {
    const { send } = await scene(firstly(`${interim}${OK}`));
    expect((await send()).kind).toBe(expected);
    // The next exchange has bounds of its own.
    expect((await send()).kind).toBe(expected === 'answered' ? 'answered' : expected);
  });

  test('60,000 end the exchange, and nothing more is read', async () => {
    const { send } = await scene(firstly(`${hint(1000).repeat(60_000)}${OK}`));
    const { kind, responses } = await send();
    expect(kind).toBe('upstream-protocol');
    expect(responses.length).toBeLessThanOrEqual(64);
  });
});

describe('bytes that answer no request', () => {
  const FORGED = 'HTTP/1.1 200 Forged\r\nContent-Length: 6\r\n\r\nforged';

  test.each([
    ['a whole response in the same packet', `${OK}${FORGED}`],
    ['the start of one', `${OK}HTT`],
    ['an interim response', `${OK}HTTP/1.1 103 Early Hints\r\n\r\n`],
    ['more body than Content-Length says', `${OK}k`],
    ['a body of 204', `HTTP/1.1 204 No Content\r\n\r\n${FORGED}`],
    ['a body of 304', `HTTP/1.1 304 Not Modified\r\nContent-Length: 6\r\n\r\nforged`],
  ])('close the connection: %s', async (_what, bytes) => {
    const { send, upstream } = await scene(firstly(bytes));
    expect(['200 OK', '204 No Content', '304 Not Modified']).toContain((await send()).responses[0]);
    for (let next = 0; next < 3; next += 1) expect((await send()).responses).not.toContain('200 Forged');
    expect(upstream.count).toBeGreaterThan(1);
  });

  test('close the connection that waits for its next request', async () => {
    const closed: Promise<void>[] = [];
    const { send, upstream } = await scene(async (connection) => {
      await connection.request();
      await connection.write(OK);
      if (connection.number > 1) return;
      await connection.write(FORGED);
      closed.push(connection.closed());
    });
    await send();
    await closed[0];
    expect((await send()).responses).toEqual(['200 OK']);
    expect(upstream.count).toBe(2);
  });

  test.each([
    ['the rest of a body', 'k', 'lost: upstream-protocol'],
    ['a line that ends without CR', 'rest\n', 'lost: upstream-protocol'],
    ['an end of a line before a response', `\r\n${OK}`, 'lost: upstream-protocol'],
    ['behind an interim response', 'HTTP/1.1 103 Early Hints\r\n\r\nk', 'upstream-protocol'],
    [
      'behind the head of a response',
      'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nk\r\n',
      'upstream-protocol',
    ],
  ])('lose a request that was sent on a kept connection before they came: %s', async (_what, bytes, kind) => {
    const { send, upstream } = await scene(async (connection) => {
      await connection.request();
      await connection.write(OK);
      if ((await connection.request()) !== undefined) await connection.write(bytes);
    });
    expect((await send()).kind).toBe('answered');
    expect((await send()).kind).toBe(kind);
    expect([(await send()).kind, upstream.count]).toEqual(['answered', 2]);
  });

  test('before a request of which nothing was sent yet are not its response', async () => {
    const { send } = await scene(async (connection) => {
      // The head goes out with the first piece of a streamed body.
      await connection.write(FORGED);
      await connection.closed();
    });
    const gone = Promise.withResolvers<never>();
    const body = (async function* (): AsyncGenerator<Buffer> {
      yield await gone.promise;
    })();
    const { kind, responses } = await send({ method: 'POST', body, headers: ['content-length', '5'] });
    gone.reject(new Error('the test is over'));
    expect([kind, responses]).toEqual(['lost: upstream-unreachable', []]);
  });
});

describe('a connection whose response had', () => {
  const chunked = 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n';

  test.each([
    ['Connection: close', 2],
    ['Proxy-Connection: close', 2],
    ['Upgrade: x', 2],
    ['X-Checksum: 1', 1],
  ])('%s in its trailers serves the next request on %i connections', async (field, expected) => {
    const { send, upstream } = await scene(firstly(`${chunked}${field}\r\n\r\n`));
    expect(await send()).toMatchObject({ kind: 'answered', body: 'ok', trailers: field.split(': ') });
    expect(await send()).toMatchObject({ kind: 'answered', body: 'ok' });
    expect(upstream.count).toBe(expected);
  });
});

describe.each([
  ['TLS', true],
  ['plain TCP', false],
])('over %s a response that ends with its connection', (_what, tls) => {
  const start = 'HTTP/1.1 200 OK\r\n\r\nsome of it';
  const chunked = 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\na\r\nsome of it\r\n';

  test('is whole when the upstream ends the connection', async () => {
    const { send } = await scene(firstly(start, { after: (connection) => connection.end() }), { tls });
    expect(await send()).toMatchObject({ kind: 'answered', body: 'some of it' });
  });

  test('is broken off when the connection is reset', async () => {
    // Bytes before a reset may be lost with it, so the reset waits until they have been read.
    const read = Promise.withResolvers<void>();
    const script = async (connection: UpstreamConnection): Promise<void> => {
      await connection.request();
      await connection.write(start);
      await read.promise;
      connection.reset();
    };
    const { send } = await scene(script, { tls });
    const outcome = await send({}, async (response, onPiece) => {
      if (!response.hasPieces) await response.more();
      response.take().forEach(onPiece);
      read.resolve();
      await response.more();
    });
    expect(outcome).toMatchObject({ kind: 'upstream-unreachable', body: 'some of it' });
  });

  test('is broken off when it has chunks, however the connection ends', async () => {
    const { send } = await scene(firstly(chunked, { after: (connection) => connection.end() }), { tls });
    expect((await send()).kind).toMatch(/^upstream-/);
  });
});

test('a TLS connection that ends without close_notify ends the response: Node.js does not tell the difference', async () => {
  const { send } = await scene(
    firstly('HTTP/1.1 200 OK\r\n\r\nsome of it', { after: (connection) => connection.cut() }),
  );
  expect(await send()).toMatchObject({ kind: 'answered', body: 'some of it' });
});
