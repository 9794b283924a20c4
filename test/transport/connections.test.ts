import { setTimeout as delay } from 'node:timers/promises';
import { beforeEach, describe, expect, test } from '@jest/globals';
import { Cancellation } from '../../src/base/cancellation.ts';
import type { Clock } from '../../src/base/clock.ts';
import { GatewayError } from '../../src/base/errors.ts';
import type { UpstreamResponse } from '../../src/handshake/response.ts';
import { closing } from '../support/closing.ts';
import type { UpstreamConnection } from '../support/scripted-upstream.ts';
import { until } from '../support/until.ts';
import { type ReadBody, useExchanges } from './exchanges.ts';

const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok';
const scene = useExchanges();

/** Answers every request of a connection with these bytes. */
function always(reply: string) {
  return async (connection: UpstreamConnection): Promise<void> => {
    while ((await connection.request()) !== undefined) await connection.write(reply);
  };
}

/** Answers every request with the number of its connection. */
const numbering = async (connection: UpstreamConnection): Promise<void> => {
  const body = String(connection.number);
  await always(`HTTP/1.1 200 OK\r\nContent-Length: ${body.length}\r\n\r\n${body}`)(connection);
};

/** Receives requests and answers none. */
const silent = async (connection: UpstreamConnection): Promise<void> => {
  await connection.request();
  await connection.closed();
};

function cancellable(): { cancellation: Cancellation; cancel: () => void } {
  const cancellation = new Cancellation();
  const cancel = (): void => cancellation.cancel(new GatewayError('client-closed', 'The client left.'));
  return { cancellation, cancel };
}

async function* pieces(...texts: string[]): AsyncGenerator<Buffer, void> {
  for (const text of texts) yield Buffer.from(text, 'latin1');
}

describe('a connection that breaks at any byte of a response', () => {
  const head = 'HTTP/1.1 103 Hints\r\nA: b\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n';
  const response = `${head}3;x=y\r\nabc\r\n1\r\nd\r\n0\r\nX-T: 1\r\n\r\n`;
  const LOST = 'lost: upstream-unreachable';

  test.each([
    ['by its end, over TCP', 'end', false],
    ['by its end, over TLS', 'end', true],
    ['by a reset, over TCP', 'reset', false],
    ['by a reset, over TLS', 'reset', true],
  ] as const)('%s, gives no whole response', async (_what, how, tls) => {
    const breaking = async (connection: UpstreamConnection): Promise<void> => {
      for (let line = await connection.request(); line !== undefined; line = await connection.request()) {
        const sent = Number(/^GET \/(\d+) /.exec(line)?.[1]);
        await connection.write(sent === 0 ? OK : response.slice(0, sent));
        if (sent > 0) connection[how]();
      }
    };
    const { send } = await scene(breaking, { tls });
    for (let sent = 1; sent < response.length; sent += 1) {
      const { kind, body } = await send({ target: `/${sent}` });
      // Bytes before a reset may be lost with it.
      if (how === 'end') expect(kind).toBe('upstream-unreachable');
      else expect([LOST, 'upstream-unreachable']).toContain(kind);
      expect('abcd'.startsWith(body)).toBe(true);
      expect(await send({ target: '/0' })).toMatchObject({ kind: 'answered', body: 'ok' });
    }
  });
});

describe('requests that wait for a connection', () => {
  /** Notes the targets of requests, and answers them when it may. */
  function noting(may: Promise<unknown> = Promise.resolve()) {
    const targets: string[] = [];
    const script = async (connection: UpstreamConnection): Promise<void> => {
      for (let head = await connection.request(); head !== undefined; head = await connection.request()) {
        targets.push(head.split(' ')[1] ?? '');
        await may;
        await connection.write(OK);
      }
    };
    return { targets, script };
  }

  test('get one in their order, and no more connections are made than there may be', async () => {
    const { targets, script } = noting();
    const { send, upstream, connections } = await scene(script);
    const all = Array.from({ length: 20 }, (_, index) => `/${index}`);
    const sent = all.map((target) => send({ target }));
    expect(connections.stats).toEqual({ connected: 0, free: 0, running: 0, pending: 20, limit: 1 });
    await Promise.all(sent);
    expect([targets, upstream.count]).toEqual([all, 1]);
    expect(connections.stats).toEqual({ connected: 1, free: 1, running: 0, pending: 0, limit: 1 });
  });

  test('never reach the upstream if they are cancelled meanwhile', async () => {
    const answer = Promise.withResolvers<void>();
    const { targets, script } = noting(answer.promise);
    const { send, connections } = await scene(script);
    const { cancellation, cancel } = cancellable();
    const sent = [send({ target: '/1' }), send({ target: '/2', cancellation }), send({ target: '/3' })];
    await until(() => targets.length === 1);
    cancel();
    expect((await sent[1])?.kind).toBe('client-closed');
    expect(connections.stats).toMatchObject({ running: 1, pending: 1 });
    answer.resolve();
    expect((await Promise.all(sent)).map(({ kind }) => kind)).toEqual([
      'answered',
      'client-closed',
      'answered',
    ]);
    expect(targets).toEqual(['/1', '/3']);
  });

  test('are refused when their turn comes, if something refuses them by then; the next ones go out', async () => {
    const answer = Promise.withResolvers<void>();
    const { targets, script } = noting(answer.promise);
    const { send } = await scene(script);
    let error: GatewayError | undefined;
    const refusal = (): GatewayError | undefined => error;
    const sent = [
      send({ target: '/1', refusal }),
      send({ target: '/2', refusal }),
      send({ target: '/3', refusal }),
      send({ target: '/4' }),
    ];
    await until(() => targets.length === 1);
    error = new GatewayError('upstream-paused', '');
    answer.resolve();
    expect((await Promise.all(sent)).map(({ kind }) => kind)).toEqual([
      'answered',
      'upstream-paused',
      'upstream-paused',
      'answered',
    ]);
    expect(targets).toEqual(['/1', '/4']);
  });

  test('get the connection that a cancelled one has waited for', async () => {
    const { send, upstream } = await scene(numbering);
    const { cancellation, cancel } = cancellable();
    const sent = [send({ cancellation }), send()];
    await new Promise(setImmediate);
    cancel();
    expect((await Promise.all(sent)).map(({ kind }) => kind)).toEqual(['client-closed', 'answered']);
    expect(upstream.count).toBe(1);
  });

  test('each fail with the error of a connection of their own if none can be made', async () => {
    const { send, connections } = await scene(always(OK), { trusted: false });
    const sent = await Promise.all([send(), send(), send()]);
    expect(sent.map(({ kind }) => kind)).toEqual([
      'lost: upstream-tls',
      'lost: upstream-tls',
      'lost: upstream-tls',
    ]);
    expect(connections.stats).toEqual({ connected: 0, free: 0, running: 0, pending: 0, limit: 1 });
  });
});

describe('a client with more requests than there are connections', () => {
  /** The clients of the requests that came, in their order; nothing is sent to `hog`, and a response to others at once. */
  async function start(clock?: Clock) {
    const heads: string[] = [];
    const options = { connections: 16, tls: false, ...(clock && { clock }) };
    const { send } = await scene(async (connection) => {
      for (;;) {
        const head = await connection.request();
        if (head === undefined) return;
        const client = head.split(' ')[1]?.slice(1) ?? '';
        heads.push(client);
        if (client !== 'hog') await connection.write(OK);
      }
    }, options);
    const cancellation = new Cancellation();
    closing.push(async () => cancellation.cancel(new GatewayError('client-closed', 'The client left.')));
    const ask = (client: string) => send({ client, target: `/${client}`, cancellation });
    const held = () => heads.filter((client) => client === 'hog').length;
    return { ask, held };
  }

  test('leaves one in eight to others, so that slow responses to it do not keep them waiting', async () => {
    const { ask, held } = await start();
    for (const client of ['hog-before', 'other']) expect((await ask(client)).kind).toBe('answered');
    for (let count = 0; count < 20; count += 1) void ask('hog');
    await until(() => held() === 14);
    for (let count = 0; count < 5; count += 1) expect((await ask('other')).kind).toBe('answered');
    expect((await ask('third')).kind).toBe('answered');
    expect(held()).toBe(14);
  });

  test('has all of them while others have had none for ten minutes', async () => {
    let now = 1_000_000;
    const { ask, held } = await start({ now: () => now });
    for (const client of ['hog-before', 'other']) expect((await ask(client)).kind).toBe('answered');
    now += 600_001;
    for (let count = 0; count < 20; count += 1) void ask('hog');
    await until(() => held() === 16);
  });

  test('has all of them as long as there is no other, the gateway itself apart', async () => {
    const { ask, held } = await start();
    expect((await ask('')).kind).toBe('answered');
    for (let count = 0; count < 20; count += 1) void ask('hog');
    await until(() => held() === 16);
  });
});

describe('a connection is used again', () => {
  test('if it was the last one in use', async () => {
    const { send, upstream } = await scene(numbering, { connections: 4 });
    await Promise.all([send(), send(), send(), send()]);
    expect(upstream.count).toBe(4);
    const bodies = new Set<string>();
    for (let count = 0; count < 4; count += 1) bodies.add((await send()).body);
    expect(bodies.size).toBe(1);
  });

  test.each(['POST', 'PROPFIND', 'REPORT', 'SEARCH', 'LOCK'])('after a body of %s', async (method) => {
    const { send, upstream } = await scene(always(OK));
    for (let count = 0; count < 2; count += 1) await send({ method, body: Buffer.from('x') });
    expect(upstream.count).toBe(1);
  });

  test.each([
    ['says that it closes it', 'Connection: close'],
    ['says that it closes it soon', 'Keep-Alive: timeout=2'],
    ['announces a body of a 204', 'Content-Length: 1', '204 No Content'],
  ])('but not if the upstream %s', async (_what, line, status = '200 OK') => {
    const length = status === '200 OK' ? 'Content-Length: 0\r\n' : '';
    const response = `HTTP/1.1 ${status}\r\n${length}${line}\r\n\r\n`;
    const { send, upstream, connections } = await scene(always(response));
    expect([(await send()).kind, (await send()).kind]).toEqual(['answered', 'answered']);
    expect(upstream.count).toBe(2);
    expect(connections.stats.connected).toBe(0);
  });

  test.each([
    ['HEAD', null],
    ['DELETE', Buffer.from('x')],
  ])('but not after %s with the body %p, and the upstream is told', async (method, body) => {
    const heads: string[] = [];
    const { send, upstream } = await scene(async (connection) => {
      heads.push((await connection.request()) ?? '');
      await connection.write(method === 'HEAD' ? 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n' : OK);
    });
    const message = { method, body, client: 'reporting' };
    expect([(await send(message)).kind, (await send(message)).kind]).toEqual(['answered', 'answered']);
    expect(upstream.count).toBe(2);
    expect(heads[0]).toMatch(/\r\nconnection: close$/m);
  });

  test('but not after a HEAD of the gateway that is served, whose response can have a body', async () => {
    const { send, connections } = await scene(always('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n'));
    expect((await send({ method: 'HEAD' })).kind).toBe('answered');
    expect(connections.stats.connected).toBe(0);
  });

  test('but not after the time that the upstream keeps it: it is closed before', async () => {
    const closed: Promise<void>[] = [];
    const { send } = await scene(async (connection) => {
      closed.push(connection.closed());
      await always('HTTP/1.1 200 OK\r\nKeep-Alive: timeout=3\r\nContent-Length: 0\r\n\r\n')(connection);
    });
    await send();
    const start = performance.now();
    await closed[0];
    // Two seconds before the upstream would.
    expect(performance.now() - start).toBeGreaterThan(900);
  });
});

describe('a response before the end of the request body', () => {
  test('ends the exchange; the connection is closed, and no more of the body is read', async () => {
    let returned = false;
    const next = Promise.withResolvers<void>();
    async function* body(): AsyncGenerator<Buffer, void> {
      try {
        yield Buffer.from('begun');
        await next.promise;
        yield Buffer.from('more');
        yield Buffer.from('never read');
      } finally {
        returned = true;
      }
    }
    const closed: Promise<void>[] = [];
    const { send, upstream } = await scene(async (connection) => {
      closed.push(connection.closed());
      await always(OK)(connection);
    });
    const headers = ['content-length', '100'];
    expect((await send({ method: 'POST', headers, body: body() })).kind).toBe('answered');
    await closed[0];
    next.resolve();
    await until(() => returned);
    expect((await send()).kind).toBe('answered');
    expect(upstream.count).toBe(2);
  });
});

describe('a request body', () => {
  /** The bytes of a request up to this text. */
  async function wireOf(change: Parameters<Awaited<ReturnType<typeof scene>>['send']>[0], end: string) {
    let text: string | undefined;
    const { send } = await scene(async (connection) => {
      text = await connection.through(end);
      await connection.write(OK);
    });
    return { outcome: await send(change), text };
  }

  test('goes out with its length', async () => {
    const { outcome, text } = await wireOf({ method: 'PUT', body: Buffer.from('abc') }, 'abc');
    expect(outcome.kind).toBe('answered');
    expect(text).toMatch(
      /^PUT \/ HTTP\/1\.1\r\nhost: 127\.0\.0\.1:\d+\r\nconnection: keep-alive\r\ncontent-length: 3\r\n\r\nabc$/,
    );
  });

  test('that is missing has length 0 with a method that usually has one, and nothing else', async () => {
    const post = await wireOf({ method: 'POST', headers: ['X-A', 'b', 'Content-Length', '7'] }, '\r\n\r\n');
    expect(post.text).toMatch(/keep-alive\r\nX-A: b\r\ncontent-length: 0\r\n\r\n$/);
    const get = await wireOf({ method: 'GET' }, '\r\n\r\n');
    expect(get.text).not.toMatch(/content-length/i);
  });

  test('of unknown length goes out in chunks', async () => {
    const body = pieces('a', '', 'bcdefghijklmnopq');
    const { outcome, text } = await wireOf({ method: 'PATCH', body }, '0\r\n\r\n');
    expect(outcome.kind).toBe('answered');
    expect(text).toMatch(
      /\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n10\r\nbcdefghijklmnopq\r\n0\r\n\r\n$/,
    );
  });

  test('of unknown length goes out only to an upstream that did not answer with HTTP/1.0 last', async () => {
    const heads: string[] = [];
    const answers = ['1.1', '1.0', '1.0', '1.1', '1.1'];
    const { send } = await scene(async (connection) => {
      for (let head = await connection.request(); head !== undefined; head = await connection.request()) {
        heads.push(head.split(' ')[0] ?? '');
        if (head.includes('chunked')) await connection.through('0\r\n\r\n');
        if (head.includes('content-length: 1')) await connection.through('x');
        await connection.write(
          `HTTP/${answers[heads.length - 1]} 200 OK\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n`,
        );
      }
    });
    const chunked = async () => (await send({ method: 'POST', body: pieces('x') })).kind;
    expect([await chunked(), (await send()).kind, await chunked()]).toEqual([
      'answered',
      'answered',
      'length-required',
    ]);
    const declared = await send({ method: 'PUT', headers: ['content-length', '1'], body: pieces('x') });
    const kept = await send({ method: 'PATCH', body: Buffer.from('x') });
    expect([declared.kind, kept.kind, await chunked()]).toEqual(['answered', 'answered', 'answered']);
    expect(heads).toEqual(['POST', 'GET', 'PUT', 'PATCH', 'POST']);
  });

  test('of unknown length goes out although a connection with older HTTP/1.0 ends', async () => {
    const both = Promise.withResolvers<void>();
    const first = Promise.withResolvers<void>();
    const ended = Promise.withResolvers<void>();
    const { send, connections, upstream } = await scene(
      async (connection) => {
        await connection.request();
        if (upstream.count === 2) both.resolve();
        await both.promise;
        if (connection.number === 2) await first.promise;
        const version = connection.number === 1 ? '1.0' : '1.1';
        await connection.write(
          `HTTP/${version} 200 OK\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n`,
        );
        if (connection.number === 1) {
          await ended.promise;
          connection.end();
          return;
        }
        await connection.through('0\r\n\r\n');
        await connection.write(OK);
      },
      { connections: 2 },
    );
    const answers = [send(), send()];
    await Promise.race(answers);
    first.resolve();
    await Promise.all(answers);
    ended.resolve();
    await until(() => connections.stats.connected === 1);
    expect((await send({ method: 'POST', body: pieces('x') })).kind).toBe('answered');
  });

  test('in pieces goes out with the length that was declared', async () => {
    const body = pieces('ab', 'c');
    const { text } = await wireOf({ method: 'PUT', headers: ['Content-Length', '3'], body }, 'abc');
    expect(text).toMatch(/\r\ncontent-length: 3\r\n\r\nabc$/);
  });

  test.each([
    ['shorter, in pieces', () => pieces('ab')],
    ['longer, in pieces', () => pieces('ab', 'cd')],
    ['shorter', () => Buffer.from('ab')],
    ['longer', () => Buffer.from('abcd')],
    ['empty, in pieces', () => pieces()],
  ])('that is %s than declared is bad-request', async (_what, body) => {
    const { send } = await scene(silent);
    expect((await send({ method: 'PUT', headers: ['content-length', '3'], body: body() })).kind).toBe(
      'bad-request',
    );
  });

  test('that fails ends the exchange with its error, and the connection', async () => {
    const arrived = Promise.withResolvers<void>();
    async function* failing(): AsyncGenerator<Buffer, void> {
      yield Buffer.from('a');
      await arrived.promise;
      throw new GatewayError('body-too-large', 'x');
    }
    const { send, upstream } = await scene(async (connection) => {
      if (connection.number > 1) return always(OK)(connection);
      await connection.through('\r\na\r\n');
      arrived.resolve();
    });
    expect((await send({ method: 'PUT', body: failing() })).kind).toBe('body-too-large');
    expect((await send()).kind).toBe('answered');
    expect(upstream.count).toBe(2);
  });

  test('whose reset is that of the client is not taken for one of the upstream', async () => {
    async function* reset(): AsyncGenerator<Buffer, void> {
      yield Buffer.from('a');
      throw Object.assign(new Error('read ECONNRESET'), { code: 'ECONNRESET' });
    }
    const { send } = await scene(silent);
    expect((await send({ method: 'PUT', body: reset() })).kind).toBe('internal-error');
  });
});

test.each([
  ['a header value with a character that is cut to LF', { headers: ['x-a', 'b\u010aevil: 1'] }],
  ['a header value with LF', { headers: ['x-a', 'b\r\nevil: 1'] }],
  ['a header value with a whole line behind it', { headers: ['x-a', 'b\r\nevil: 1\r\nx-b: c'] }],
  ['a header name with a colon', { headers: ['content-length: 5\r\nx-a', 'b'] }],
  ['a header name with a space', { headers: ['x a', 'b'] }],
  ['a header for the framing', { headers: ['Transfer-Encoding', 'chunked'] }],
  ['a header for the connection', { headers: ['Connection', 'x'] }],
  ['a malformed length', { headers: ['Content-Length', '1, 1'], body: Buffer.from('x') }],
  ['a target with a space', { target: '/ HTTP/1.1\r\nevil: 1\r\n\r\n' }],
  ['a target that is no path', { target: 'evil' }],
  ['a method that is no token', { method: 'GET /' }],
])('a request with %s is not sent', async (_what, change) => {
  const heads: (string | undefined)[] = [];
  // Over TCP, so that the upstream sees a connection of which nothing came.
  const { send } = await scene(async (connection) => void heads.push(await connection.request()), {
    tls: false,
  });
  expect((await send(change)).kind).toBe('internal-error');
  await until(() => heads.length === 1);
  expect(heads).toEqual([undefined]);
});

describe('a reader of a response', () => {
  const NEVER_WHOLE = 'HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n';
  let begun = Promise.withResolvers<void>();
  beforeEach(() => {
    begun = Promise.withResolvers();
  });
  /** Answers the first request in part, and later ones whole. */
  const firstInPart = async (connection: UpstreamConnection): Promise<void> => {
    if (connection.number > 1) return always(OK)(connection);
    await connection.request();
    await connection.write(`${NEVER_WHOLE}s`);
    await begun.promise;
    await connection.write('ome');
    await connection.closed();
  };

  test('that abandons it ends its exchange, and no other', async () => {
    const { send, upstream } = await scene(firstInPart);
    const outcome = await send({}, async (response) => {
      begun.resolve();
      response.abandon();
      expect([response.isWhole, response.error?.code]).toEqual([false, 'upstream-protocol']);
      await response.more();
    });
    expect(outcome.kind).toBe('upstream-protocol');
    expect(await send()).toMatchObject({ kind: 'answered', body: 'ok' });
    expect(upstream.count).toBe(2);
  });

  test.each([
    ['at once', 1],
    ['when more comes', 0],
  ])('with a check of the body that throws %s, ends its exchange, and no other', async (_when, before) => {
    let calls = before;
    const { send, upstream } = await scene(firstInPart);
    const update = (): void => {
      if (calls++ === 0) return;
      // Not to be taken for an error of the connection.
      throw Object.assign(new Error('defect'), { code: 'ECONNRESET' });
    };
    const outcome = await send({}, async (response) => {
      if (!response.hasPieces) await response.more();
      response.inspect({ update, finish: () => {} });
      begun.resolve();
      await response.more();
    });
    expect(outcome.kind).toBe('internal-error');
    expect(await send()).toMatchObject({ kind: 'answered', body: 'ok' });
    expect(upstream.count).toBe(2);
  });

  /** Resolves when the upstream has written this many bytes of a body. */
  function writing(size: number) {
    const state = { isWritten: false };
    const script = async (connection: UpstreamConnection): Promise<void> => {
      if ((await connection.request()) === undefined) return;
      await connection.write(`HTTP/1.1 200 OK\r\nContent-Length: ${size}\r\n\r\n${'a'.repeat(size)}`);
      state.isWritten = true;
    };
    return { state, script };
  }

  test.each([
    ['has not begun to read', false],
    ['holds it back', true],
  ])('that %s holds the upstream back, and the idle timeout does not count', async (_how, pauses) => {
    const SIZE = 32 * 1024 * 1024;
    const { state, script } = writing(SIZE);
    const { send } = await scene(script, { timeouts: { idle: 100 } });
    const { kind, body } = await send({}, async (response, onPiece) => {
      if (pauses) {
        await response.more();
        response.take().forEach(onPiece);
        response.pause();
      }
      await delay(500);
      expect(state.isWritten).toBe(false);
      response.resume();
      for (;;) {
        const { isWhole } = response;
        response.take().forEach(onPiece);
        if (isWhole) return;
        await response.more();
      }
    });
    expect([kind, body.length]).toEqual(['answered', SIZE]);
  });

  test('may resume it when its exchange is over', async () => {
    const responses: UpstreamResponse[] = [];
    const { send, upstream } = await scene(always(OK));
    for (let count = 0; count < 3; count += 1) {
      const outcome = await send({}, async (response) => {
        responses.push(response);
        await response.skip();
      });
      expect(outcome.kind).toBe('answered');
      for (const each of responses) {
        each.pause();
        each.resume();
        each.abandon();
      }
    }
    expect(upstream.count).toBe(1);
  });
});

describe('a response that is discarded', () => {
  const head = (length: number): string => `HTTP/1.1 200 OK\r\nContent-Length: ${length}\r\n\r\n`;
  const discard: ReadBody = (response) => response.discard();

  test.each([
    ['leaves its connection to others if it ends soon', head(60_000), 60_000, 1],
    ['is not read beyond 64 KiB', head(1_000_000), 70_000, 2],
    ['is not waited for beyond a second', head(5), 1, 2],
  ])('%s', async (_how, first, size, expected) => {
    const { send, upstream } = await scene(async (connection) => {
      if (connection.number === 1) {
        await connection.request();
        await connection.write(`${first}${'a'.repeat(size)}`);
      }
      await always(OK)(connection);
    });
    expect((await send({}, discard)).kind).toBe('answered');
    expect(await send()).toMatchObject({ kind: 'answered', body: 'ok' });
    expect(upstream.count).toBe(expected);
  });
});

describe('a timeout', () => {
  test('ends an exchange whose head does not come, and not earlier', async () => {
    const { send } = await scene(silent, { timeouts: { response: 400 } });
    const start = performance.now();
    expect((await send()).kind).toBe('upstream-timeout');
    expect(performance.now() - start).toBeGreaterThanOrEqual(399);
  });

  test('is not put off by a head that comes bit by bit', async () => {
    const { send } = await scene(
      async (connection) => {
        await connection.request();
        await connection.write('HTTP/1.1 200 OK\r\nA: ');
        while (!connection.isClosed) {
          await connection.write('a');
          await delay(5);
        }
      },
      { timeouts: { response: 200 } },
    );
    expect((await send()).kind).toBe('upstream-timeout');
  });

  test('ends a response that stops in its body', async () => {
    const { send } = await scene(
      async (connection) => {
        await connection.request();
        await connection.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no');
        await connection.closed();
      },
      { timeouts: { idle: 200 } },
    );
    expect(await send()).toMatchObject({ kind: 'upstream-timeout', body: 'o' });
  });

  test('does not count while the client sends its body', async () => {
    async function* slow(): AsyncGenerator<Buffer, void> {
      yield Buffer.from('a');
      await delay(600);
      yield Buffer.from('b');
    }
    const { send } = await scene(
      async (connection) => {
        await connection.through('0\r\n\r\n');
        await connection.write(OK);
      },
      { timeouts: { response: 200 } },
    );
    expect((await send({ method: 'POST', body: slow() })).kind).toBe('answered');
  });

  test.each([64 * 1024, 100])(
    'ends an exchange whose body the upstream does not read, in pieces of %p',
    async (size) => {
      async function* endless(): AsyncGenerator<Buffer, void> {
        for (;;) yield Buffer.alloc(size);
      }
      const sockets: UpstreamConnection[] = [];
      const { send } = await scene(
        async (connection) => {
          sockets.push(connection);
          connection.pause();
          await connection.closed();
        },
        { timeouts: { response: 200 } },
      );
      expect((await send({ method: 'POST', body: endless() })).kind).toBe('upstream-timeout');
    },
  );
});

describe('the end of the connections', () => {
  test('comes at once', async () => {
    const { send, connections } = await scene(silent);
    const sent = [send(), send()];
    await until(() => connections.stats.running === 1);
    connections.close();
    expect((await Promise.all(sent)).map(({ kind }) => kind)).toEqual(['draining', 'draining']);
    expect(connections.stats).toEqual({ connected: 0, free: 0, running: 0, pending: 0, limit: 1 });
    expect((await send()).kind).toBe('draining');
  });
});

test('a connection that the upstream keeps open is replaced after five minutes, so that a change of DNS takes effect', async () => {
  const clock = { time: 1_000, now: () => clock.time };
  const { send } = await scene(
    (connection) =>
      always(`HTTP/1.1 200 OK\r\nKeep-Alive: timeout=600\r\nContent-Length: 1\r\n\r\n${connection.number}`)(
        connection,
      ),
    { clock },
  );
  const bodies: string[] = [];
  for (const passed of [0, 299_999, 1, 0, 1_000, 598_000]) {
    clock.time += passed;
    bodies.push((await send()).body);
  }
  expect(bodies).toEqual(['1', '1', '2', '2', '2', '3']);
});
