import { constants, createGzip } from 'node:zlib';
import { describe, expect, test } from '@jest/globals';
import { EventSource } from 'undici';
import { auditOptions, recordsIn, useFolders } from '../support/audit-log.ts';
import { closing } from '../support/closing.ts';
import { type RunningGateway, startGateway } from '../support/gateway.ts';
import { startConnections, type UpstreamConnection } from '../support/scripted-upstream.ts';
import { until } from '../support/until.ts';
import { connect } from '../support/wire.ts';

const TOTAL_MS = 500;
const REQUESTS = 'digest_gateway_requests_total';
const CHALLENGE =
  'HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Digest realm="x", nonce="n", qop="auth"\r\nContent-Length: 0\r\n\r\n';
const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok';
const TYPE = 'Content-Type: text/event-stream';

// Hooks run in this order: clients go first, and folders when nothing writes there any more.
const folder = useFolders();

/** How an upstream writes a body of unknown length. */
interface Framing {
  readonly head: string;
  piece(bytes: string): string;
  end(connection: UpstreamConnection): unknown;
}

const FRAMINGS: readonly (readonly [string, Framing])[] = [
  [
    'in chunks',
    {
      head: `HTTP/1.1 200 OK\r\n${TYPE}\r\nTransfer-Encoding: chunked\r\n\r\n`,
      piece: (bytes) => `${bytes.length.toString(16)}\r\n${bytes}\r\n`,
      end: (connection) => connection.write('0\r\n\r\n'),
    },
  ],
  [
    'to the end of the connection',
    {
      head: `HTTP/1.1 200 OK\r\n${TYPE}\r\n\r\n`,
      piece: (bytes) => bytes,
      end: (connection) => connection.end(),
    },
  ],
  [
    'to the end of the connection, from HTTP/1.0',
    {
      head: `HTTP/1.0 200 OK\r\n${TYPE}\r\nConnection: keep-alive\r\n\r\n`,
      piece: (bytes) => bytes,
      end: (connection) => connection.end(),
    },
  ],
];

/** A stream of events that a test writes. */
interface Stream {
  readonly connection: UpstreamConnection;
  send(bytes: string): Promise<void>;
  end(): Promise<void>;
}

interface Scene {
  readonly gateway: RunningGateway;
  /** The next stream that a client opens; its head has been sent, and no byte of its body. */
  opened(): Promise<Stream>;
}

/** A gateway before an upstream that gives every path below /events a stream, and everything else `ok`. */
async function start(framing: Framing, directory?: string): Promise<Scene> {
  const streams: Stream[] = [];
  const upstream = await startConnections(async (connection) => {
    for (let head = await connection.request(); head !== undefined; head = await connection.request()) {
      if (!/^authorization: digest /im.test(head)) await connection.write(CHALLENGE);
      else if (!head.startsWith('GET /events')) await connection.write(OK);
      else {
        await connection.write(framing.head);
        streams.push({
          connection,
          send: (bytes) => connection.write(framing.piece(bytes)),
          end: async () => void (await framing.end(connection)),
        });
      }
    }
  });
  closing.push(() => upstream.close());
  const settings = {
    tls: { allowPlaintext: true },
    timeouts: { response: '60s', idle: '60s', total: `${TOTAL_MS}ms` },
    // An outcome is looked for without holding events back.
    outcomes: [{ name: 'sought', status: 200, bodyContains: 'not in any event' }],
    operations: {
      events: { method: 'GET', path: '/events', timeouts: { total: 'off' } },
      // A parser of YAML 1.1 reads off as false.
      again: { method: 'GET', path: '/events/again', timeouts: { total: false } },
      short: { method: 'GET', path: '/events/short' },
    },
  };
  const gateway = await startGateway(
    { up: { origin: upstream.origin, settings } },
    {},
    directory === undefined ? {} : { audit: auditOptions(directory) },
  );
  closing.push(() => gateway.close());
  const opened = async (): Promise<Stream> => {
    await until(() => streams.length > 0);
    const stream = streams.shift();
    if (stream === undefined) throw new Error('no stream');
    return stream;
  };
  return { gateway, opened };
}

const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

describe.each(FRAMINGS)('a stream of events %s', (_how, framing) => {
  describe.each([
    ['with', true],
    ['without', false],
  ])('%s an audit log', (_with, audited) => {
    test('reaches an EventSource event by event', async () => {
      const { gateway, opened } = await start(framing, audited ? await folder() : undefined);
      const source = new EventSource(`${gateway.origin}/events`);
      closing.push(() => source.close());
      const received: string[] = [];
      source.onmessage = ({ data }) => void received.push(String(data));
      const open = new Promise((resolve) => {
        source.onopen = resolve;
      });
      const stream = await opened();
      // Of the body no byte has been sent yet.
      await open;
      for (let event = 1; event <= 5; event += 1) {
        await stream.send(`data: ${event}\n\n`);
        // The next one is sent only when the client has this one.
        await until(() => received.length === event);
      }
      expect(received).toEqual(['1', '2', '3', '4', '5']);
    });
  });

  test('is recorded at its head, and its outcome at its end', async () => {
    const directory = await folder();
    const { gateway, opened } = await start(framing, directory);
    const response = await fetch(`${gateway.origin}/events`);
    const stream = await opened();
    const begun = performance.now();
    const records = await recordsIn(directory);
    expect(records.filter(({ path }) => path === '/events')).toMatchObject([
      { kind: 'access', status: 200, operation: 'events' },
    ]);
    await stream.send('data: 1\n\n');
    await sleep(TOTAL_MS);
    await stream.send('data: 2\n\n');
    const lasted = performance.now() - begun;
    await stream.end();
    expect(await response.text()).toBe('data: 1\n\ndata: 2\n\n');
    await gateway.close();
    const outcomes = (await recordsIn(directory)).filter(({ kind }) => kind === 'outcome');
    expect(outcomes).toMatchObject([{ status: 200, bytes: { in: 0, out: 18 } }]);
    expect(outcomes[0]?.['durationMs']).toBeGreaterThanOrEqual(Math.floor(lasted));
  });

  test('reaches a client with HTTP/1.0, to the end of its connection', async () => {
    const { gateway, opened } = await start(framing);
    for (const lines of ['', 'Connection: keep-alive\r\n']) {
      const client = await connect(gateway.port);
      await client.send(`GET /events HTTP/1.0\r\n${lines}\r\n`);
      const stream = await opened();
      await until(() => client.pending > 0);
      await stream.send('data: 1\n\n');
      await stream.send('data: 2\n\n');
      await stream.end();
      await client.end();
      const { status, headers, body } = await client.answer();
      expect([status, body.toString()]).toEqual([200, 'data: 1\n\ndata: 2\n\n']);
      expect(headers.map(([name]) => name.toLowerCase())).not.toContain('transfer-encoding');
    }
  });

  test('that is compressed reaches the client piece by piece, as it is', async () => {
    const { gateway, opened } = await start({
      ...framing,
      head: framing.head.replace(TYPE, `${TYPE}\r\nContent-Encoding: gzip`),
    });
    // The client decodes what has come so far.
    const { body, headers } = await fetch(`${gateway.origin}/events`);
    expect(headers.get('content-encoding')).toBe('gzip');
    const reader = body?.getReader();
    const stream = await opened();
    const gzip = createGzip();
    closing.push(() => gzip.destroy());
    gzip.on('data', (piece: Buffer) => void stream.send(piece.toString('latin1')));
    for (let event = 1; event <= 3; event += 1) {
      gzip.write(`data: ${event}\n\n`);
      gzip.flush(constants.Z_SYNC_FLUSH);
      let text = '';
      while (!text.endsWith('\n\n')) text += Buffer.from((await reader?.read())?.value ?? '').toString();
      expect(text).toBe(`data: ${event}\n\n`);
    }
    await reader?.cancel();
  });

  test('that breaks off is no whole response, also for a client with HTTP/1.0', async () => {
    for (const version of ['1.1', '1.0']) {
      const { gateway, opened } = await start(framing);
      const client = await connect(gateway.port);
      await client.send(`GET /events HTTP/${version}\r\nHost: x\r\n\r\n`);
      const stream = await opened();
      await stream.send('data: 1\n\n');
      await until(() => client.pending > 0);
      const failed = new Promise<Error | undefined>((resolve) => {
        client.socket.once('error', resolve).once('close', () => resolve(undefined));
      });
      stream.connection.reset();
      await client.end();
      client.socket.end();
      if (version === '1.0') expect(await failed).toMatchObject({ code: 'ECONNRESET' });
      else await expect(client.answer()).rejects.toThrow();
    }
  });

  test('of a client that leaves ends at the upstream, too', async () => {
    const { gateway, opened } = await start(framing);
    const leaving = new AbortController();
    await fetch(`${gateway.origin}/events`, { signal: leaving.signal });
    const stream = await opened();
    await stream.send('data: 1\n\n');
    leaving.abort();
    await stream.connection.closed();
    await until(async () => (await gateway.metric(REQUESTS, { code: 'client-closed' })) === 1);
  });
});

describe('timeouts.total', () => {
  const [, framing] = FRAMINGS[0] ?? [];
  if (framing === undefined) throw new Error('no framing');

  test.each(['/events', '/events/again'])(
    'does not end a stream of an operation that switches it off (%s)',
    async (path) => {
      const { gateway, opened } = await start(framing);
      const response = await fetch(`${gateway.origin}${path}`);
      const stream = await opened();
      const short = await fetch(`${gateway.origin}/events/short`);
      // By the end of a stream that began later, the time of this one is over.
      await expect(short.text()).rejects.toThrow();
      await stream.send('data: 1\n\n');
      await stream.end();
      expect(await response.text()).toBe('data: 1\n\n');
    },
  );

  test('ends one of another operation, and of a path that is not listed', async () => {
    const { gateway } = await start(framing);
    for (const path of ['/events/short', '/events/unlisted']) {
      const response = await fetch(`${gateway.origin}${path}`);
      expect(response.status).toBe(200);
      await expect(response.text()).rejects.toThrow();
    }
    expect(await gateway.metric(REQUESTS, { code: 'upstream-timeout', status: '200' })).toBe(2);
  });
});

describe('an operation without timeouts.total', () => {
  test('is still bound by timeouts.response and timeouts.idle', async () => {
    const upstream = await startConnections(async (connection) => {
      for (let head = await connection.request(); head !== undefined; head = await connection.request()) {
        const signed = /^authorization: digest /im.test(head);
        if (!signed) await connection.write(CHALLENGE);
        else if (head.startsWith('GET /idle')) await connection.write(`${OK.slice(0, -2)}`);
      }
    });
    closing.push(() => upstream.close());
    const off = (path: string) => ({ method: 'GET', path, timeouts: { total: 'off' } });
    const gateway = await startGateway({
      up: {
        origin: upstream.origin,
        settings: {
          tls: { allowPlaintext: true },
          timeouts: { response: '300ms', idle: '300ms', total: '60s' },
          operations: { idle: off('/idle'), response: off('/response') },
        },
      },
    });
    closing.push(() => gateway.close());
    for (const path of ['/idle', '/response']) {
      const response = await fetch(`${gateway.origin}${path}`);
      expect(response.status).toBe(504);
      expect(await response.text()).toContain(`timeouts.${path.slice(1)}`);
    }
  });
});
