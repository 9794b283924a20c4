import { describe, expect, test } from '@jest/globals';
import { Cancellation } from '../../src/base/cancellation.ts';
import { type Clock, monotonicClock } from '../../src/base/clock.ts';
import { GatewayError } from '../../src/base/errors.ts';
import { AttemptBudget } from '../../src/handshake/attempt-budget.ts';
import type { AnsweredNonce, Message } from '../../src/handshake/exchange.ts';
import type { UpstreamResponse } from '../../src/handshake/response.ts';
import type { Connections } from '../../src/transport/connections.ts';
import type { UpstreamConnection } from '../support/scripted-upstream.ts';
import { until } from '../support/until.ts';
import { useExchanges } from './exchanges.ts';

const scene = useExchanges();
const KEPT = 'HTTP/1.1 200 OK\r\nKeep-Alive: timeout=60\r\nContent-Length: 0\r\n\r\n';
const ANSWER = { headers: ['authorization', 'Digest'], answers: {} as AnsweredNonce };

/** Challenges what has no answer; all bodies are the number of the connection. */
async function guarded(connection: UpstreamConnection, fields = ''): Promise<void> {
  for (let head = await connection.request(); head !== undefined; head = await connection.request()) {
    const status = head.includes('\r\nauthorization:') ? '200 OK' : '401 Unauthorized';
    const body = head.startsWith('HEAD') ? '' : `${connection.number}`;
    await connection.write(
      `HTTP/1.1 ${status}\r\nN: ${connection.number}\r\n${fields}Content-Length: 1\r\n\r\n${body}`,
    );
  }
}

const requestOf = (client: string) => ({ client, cancellation: new Cancellation() });
/** Of the gateway's own. */
const question = () => ({ request: requestOf('') });

/** Returns the response, which was read whole. A HEAD is a question of the gateway. */
async function exchange(connections: Connections, change: Partial<Message> = {}): Promise<UpstreamResponse> {
  const request = requestOf(change.method === 'HEAD' ? '' : 'reporting');
  const response = await connections.exchange({
    request,
    method: 'GET',
    target: '/',
    headers: [],
    body: null,
    ...change,
  });
  if (response.kind === 'lost') throw response.error;
  await response.skip();
  return response;
}

const numberOf = ({ headers }: UpstreamResponse): string | undefined => headers[1];

test.each(['GET', 'HEAD'])(
  'the answer to a challenge of a %s goes out on the connection that brought it',
  async (method) => {
    const { connections } = await scene(guarded, { connections: 4 });
    const asked = await Promise.all([1, 2, 3].map(() => exchange(connections, { method })));
    const answered = await Promise.all(
      asked.map((follows) => exchange(connections, { ...ANSWER, method, follows })),
    );
    expect(answered.map(numberOf)).toEqual(asked.map(numberOf));
  },
);

test('a connection whose challenge is about to be answered is left alone while another one can be opened', async () => {
  const { connections } = await scene(guarded, { connections: 2 });
  const first = await exchange(connections);
  const both = [{ ...ANSWER }, { ...ANSWER, follows: first }].map((change) => exchange(connections, change));
  expect((await Promise.all(both)).map(numberOf)).toEqual(['2', '1']);
});

/** Opens this number of connections, which are idle then. */
async function open(connections: Connections, count: number): Promise<void> {
  await Promise.all(Array.from({ length: count }, () => exchange(connections, ANSWER)));
}

test('an answer goes out before a request that has waited, where no other connection can be opened', async () => {
  const { connections } = await scene(guarded, { connections: 1 });
  const follows = await exchange(connections);
  const order: string[] = [];
  const other = exchange(connections).then(() => order.push('other'));
  const answer = exchange(connections, { ...ANSWER, follows }).then(() => order.push('answer'));
  await Promise.all([other, answer]);
  expect(order).toEqual(['answer', 'other']);
});

test.each([2, 4])(
  'of %i connections, an answer takes none that brought the challenge of another one',
  async (limit) => {
    const { connections } = await scene(guarded, { connections: limit });
    const post = { method: 'POST', body: Buffer.from('x') };
    const [first, second] = await Promise.all([post, {}].map((change) => exchange(connections, change)));
    const answers = [{ ...post, follows: first }, { follows: second }];
    const [, answered] = await Promise.all(
      answers.map((change) => exchange(connections, { ...ANSWER, ...change })),
    );
    expect(numberOf(answered as UpstreamResponse)).toBe(numberOf(second as UpstreamResponse));
  },
);

test('an answer that is cancelled at once goes out on no connection', async () => {
  const { connections } = await scene(guarded, { connections: 1 });
  const follows = await exchange(connections);
  const request = requestOf('reporting');
  const other = exchange(connections, ANSWER);
  const answer = exchange(connections, { ...ANSWER, request, follows });
  request.cancellation.cancel(new GatewayError('client-closed', 'The client left.'));
  await expect(answer).rejects.toThrow('The client left.');
  expect(numberOf(await other)).toBe('1');
});

test.each([
  ['a question of the gateway', question],
  ['a request that needs a new one', () => ({ freshConnection: true })],
])('a connection is left to the answer to its challenge by %s', async (_what, change) => {
  const { connections } = await scene(guarded, { connections: 2 });
  const first = await exchange(connections);
  expect(numberOf(await exchange(connections, { ...ANSWER, ...change() }))).toBe('2');
  expect(numberOf(await exchange(connections, { ...ANSWER, follows: first }))).toBe('1');
});

test.each([
  ['no answer follows to the challenge of a HEAD', { method: 'HEAD' }, {}],
  ['a POST might cross the end of the last one', {}, { method: 'POST', body: Buffer.from('x') }],
])('another idle connection is used where %s', async (_what, last, change) => {
  const { connections } = await scene(guarded, { connections: 4 });
  await open(connections, 2);
  const challenged = await exchange(connections, last);
  const used = numberOf(await exchange(connections, { ...ANSWER, ...change }));
  expect([used, numberOf(challenged)].sort()).toEqual(['1', '2']);
});

test('where all have a challenge, a request goes out on the connection that was used last', async () => {
  const { connections } = await scene(guarded, { connections: 2 });
  await exchange(connections);
  expect(numberOf(await exchange(connections, question()))).toBe('2');
  expect(numberOf(await exchange(connections, ANSWER))).toBe('2');
});

test.each([
  [0, '2'],
  [1, '1'],
  [2, '1'],
])('an answer goes out where connections are kept for %i s: on connection %s', async (seconds, expected) => {
  const brief = (connection: UpstreamConnection): Promise<void> =>
    guarded(connection, `Keep-Alive: timeout=${seconds}\r\n`);
  const { connections } = await scene(brief, { connections: 2 });
  const first = await exchange(connections);
  expect(numberOf(await exchange(connections, { ...ANSWER, follows: first }))).toBe(expected);
});

test('where a body came behind a HEAD once, answers to its challenges go out on others', async () => {
  const withBody = async (connection: UpstreamConnection): Promise<void> => {
    if (connection.number > 1) return guarded(connection);
    await connection.request();
    await connection.write('HTTP/1.1 401 No\r\nContent-Length: 2\r\n\r\n');
    await connection.request();
    await connection.write('no');
    await connection.closed();
  };
  const { connections } = await scene(withBody, { connections: 3 });
  const first = await exchange(connections, { method: 'HEAD' });
  await expect(exchange(connections, { ...ANSWER, method: 'HEAD', follows: first })).rejects.toThrow();
  const second = await exchange(connections, { method: 'HEAD' });
  expect(numberOf(second)).toBe('2');
  expect(numberOf(await exchange(connections, { ...ANSWER, method: 'HEAD', follows: second }))).toBe('3');
  await open(connections, 2);
  const get = await exchange(connections);
  expect(numberOf(await exchange(connections, { ...ANSWER, follows: get }))).toBe(numberOf(get));
});

test.each([{}, question()])('one connection is enough for all requests', async (change) => {
  const { connections } = await scene(guarded, { connections: 1 });
  await exchange(connections);
  expect(numberOf(await exchange(connections, { ...ANSWER, ...change }))).toBe('1');
});

test.each([
  ['', 4_000],
  ['Keep-Alive: timeout=3\r\n', 1_000],
  ['Keep-Alive: timeout=2\r\n', 500],
])(
  'no answer goes out on a connection that the upstream may be closing since it is idle: "%s"',
  async (fields, ms) => {
    let now = 0;
    const script = (connection: UpstreamConnection): Promise<void> => guarded(connection, fields);
    const { connections } = await scene(script, { connections: 2, clock: { now: () => now } });
    for (const idle of [ms - 1, ms]) {
      const follows = await exchange(connections);
      now += idle;
      const answered = await exchange(connections, { ...ANSWER, follows });
      expect(numberOf(answered) === numberOf(follows)).toBe(idle < ms);
    }
  },
);

test('connections that were idle for too long are no more beside those that take their place', async () => {
  let now = 0;
  const { connections } = await scene(guarded, { connections: 2, clock: { now: () => now } });
  await exchange(connections);
  now += 4_000;
  expect(numberOf(await exchange(connections, ANSWER))).toBe('2');
  expect(connections.stats.connected).toBe(1);
});

test('nothing follows a HEAD of a client', async () => {
  const { connections } = await scene(guarded, { connections: 2 });
  const request = requestOf('reporting');
  const first = await exchange(connections, { method: 'HEAD', request });
  expect(numberOf(await exchange(connections, { ...ANSWER, request, follows: first }))).toBe('2');
});

test('nothing but its answer follows a HEAD of the gateway, whose response can have a body that passes for the next one', async () => {
  const { connections } = await scene(guarded, { connections: 1 });
  await exchange(connections, { method: 'HEAD' });
  expect(numberOf(await exchange(connections, ANSWER))).toBe('2');
});

test('another answer follows a HEAD of the gateway that was refused, on the connection that brought the refusal', async () => {
  const refusing = async (connection: UpstreamConnection): Promise<void> => {
    while ((await connection.request()) !== undefined)
      await connection.write(`HTTP/1.1 401 No\r\nN: ${connection.number}\r\nContent-Length: 0\r\n\r\n`);
  };
  const { connections } = await scene(refusing, { connections: 3 });
  const asked = await exchange(connections, { method: 'HEAD' });
  const refused = await exchange(connections, { ...ANSWER, method: 'HEAD', follows: asked });
  const again = await exchange(connections, { ...ANSWER, method: 'HEAD', follows: refused });
  expect([asked, refused, again].map(numberOf)).toEqual(['1', '1', '1']);
});

/** Ends a connection at the first request behind a 401. */
async function closing(connection: UpstreamConnection): Promise<void> {
  await connection.request();
  await connection.write(`HTTP/1.1 401 No\r\nN: ${connection.number}\r\nContent-Length: 0\r\n\r\n`);
  if ((await connection.request()) !== undefined) connection.reset();
}

describe('a POST, which cannot be repeated, answers on the connection that brought its challenge', () => {
  const post = { method: 'POST', body: Buffer.from('x') };
  const isOnOwn = async (connections: Connections, change: Partial<Message> = {}): Promise<boolean> => {
    const first = await exchange(connections, { ...post, ...change });
    const answered = await exchange(connections, { ...post, ...ANSWER, ...change, follows: first });
    return numberOf(answered) === numberOf(first);
  };

  test('once that has been kept behind a 401', async () => {
    const { connections } = await scene(guarded, { connections: 2 });
    expect(await isOnOwn(connections)).toBe(false);
    const get = await exchange(connections);
    await exchange(connections, { ...ANSWER, follows: get });
    expect(await isOnOwn(connections)).toBe(true);
  });

  test('once another one was kept behind the 401 to a body', async () => {
    const { connections } = await scene(guarded, { connections: 2 });
    const put = { method: 'PUT', body: Buffer.from('x') };
    const first = await exchange(connections, put);
    await exchange(connections, { ...put, ...ANSWER, follows: first });
    expect(await Promise.all([isOnOwn(connections), isOnOwn(connections)])).toEqual([true, true]);
    expect(connections.stats.connected).toBe(2);
  });

  test.each(['ownRefused', 'ownStale'] as const)(
    'after its answer was refused on another one: %s',
    async (fact) => {
      const { connections } = await scene(guarded, { connections: 2 });
      const budget = new AttemptBudget('POST');
      const request = { client: '', cancellation: new Cancellation(), budget };
      expect(await isOnOwn(connections, { request })).toBe(false);
      budget[fact] = true;
      expect(await isOnOwn(connections, { request })).toBe(true);
    },
  );

  test('not after it was called stale there, while connections end behind a 401', async () => {
    const { connections } = await scene(closing, { connections: 4 });
    const get = await exchange(connections);
    await expect(exchange(connections, { ...ANSWER, follows: get })).rejects.toThrow();
    const budget = new AttemptBudget('POST');
    budget.ownStale = true;
    expect(
      await isOnOwn(connections, { request: { client: '', cancellation: new Cancellation(), budget } }),
    ).toBe(false);
  });
});

test('where a connection ends behind a 401, the answer of a request that was repeated goes out on another one', async () => {
  const { connections } = await scene(closing, { connections: 3 });
  const first = await exchange(connections);
  await expect(exchange(connections, { ...ANSWER, follows: first })).rejects.toThrow();
  const second = await exchange(connections);
  const answered = await exchange(connections, { ...ANSWER, follows: second, freshConnection: true });
  expect(numberOf(answered)).not.toBe(numberOf(second));
});

describe('an upstream that keeps a connection behind a 401, or closes it', () => {
  const put = { method: 'PUT', body: Buffer.from('x') };
  const post = { method: 'POST', body: Buffer.from('x') };

  /** Resets a connection at what comes behind a 401, if the script says so by then. */
  const start = async (clock: Clock = monotonicClock) => {
    const state = { closes: false };
    const script = async (connection: UpstreamConnection): Promise<void> => {
      let isChallenged = false;
      for (let head = await connection.request(); head !== undefined; head = await connection.request()) {
        if (isChallenged && state.closes) return connection.reset();
        isChallenged = !head.includes('\r\nauthorization:');
        const status = isChallenged ? '401 No' : '200 OK';
        await connection.write(`HTTP/1.1 ${status}\r\nN: ${connection.number}\r\nContent-Length: 0\r\n\r\n`);
      }
    };
    const { connections } = await scene(script, { connections: 8, clock });
    /** Whether the answer goes out where the challenge came, on a connection that has not carried one before. */
    const isOnOwn = async (change: Partial<Message>): Promise<boolean> => {
      const follows = await exchange(connections, { ...change, freshConnection: true });
      const answer = { ...change, ...ANSWER, follows };
      return numberOf(await exchange(connections, answer)) === numberOf(follows);
    };
    const close = async (change: Partial<Message>): Promise<void> => {
      state.closes = true;
      await expect(isOnOwn(change)).rejects.toThrow();
      state.closes = false;
    };
    return { isOnOwn, close };
  };

  test('is known for bodies until one shows something else, whatever comes without one', async () => {
    const { isOnOwn, close } = await start();
    await isOnOwn({});
    expect(await isOnOwn(post)).toBe(false);
    await isOnOwn(put);
    await isOnOwn({});
    expect(await isOnOwn(post)).toBe(true);
    await close(put);
    await isOnOwn({});
    expect(await isOnOwn(post)).toBe(false);
  });

  test('is taken to close it for ten seconds, and not once it keeps one', async () => {
    let now = 0;
    const { isOnOwn, close } = await start({ now: () => now });
    const isCrossed = () => isOnOwn({ freshConnection: true });
    await close({});
    expect(await isCrossed()).toBe(false);
    now += 9_999;
    expect(await isCrossed()).toBe(false);
    now += 1;
    expect(await isCrossed()).toBe(true);
    await close({});
    await isOnOwn({});
    expect(await isCrossed()).toBe(true);
  });
});

test('a body that is not kept, of a PUT too, does not cross the end of a connection', async () => {
  const { connections } = await scene(guarded, { connections: 2 });
  async function* body(): AsyncGenerator<Buffer, void> {
    yield Buffer.from('x');
  }
  const follows = await exchange(connections);
  const answer = { ...ANSWER, method: 'PUT', body: body(), follows };
  expect(numberOf(await exchange(connections, answer))).toBe('2');
});

test('kept connections that something on the way has forgotten cost one request', async () => {
  let served = 0;
  const once = async (connection: UpstreamConnection): Promise<void> => {
    if ((await connection.request()) === undefined) return;
    served += 1;
    await connection.write(KEPT);
    await connection.closed();
  };
  const { send, connections } = await scene(once, { connections: 4, timeouts: { response: 400 } });
  await Promise.all([send(), send(), send()]);
  await until(() => connections.stats.free === 3);
  expect((await send()).kind).toBe('upstream-timeout');
  expect((await send()).kind).toBe('answered');
  expect(served).toBe(4);
});

test('kept connections that something has forgotten are closed also while a long poll waits, and a new one serves', async () => {
  let isForgotten = false;
  const used = new Set<number>();
  const forgetting = async (connection: UpstreamConnection): Promise<void> => {
    for (let head = await connection.request(); head !== undefined; head = await connection.request()) {
      const isSilent = head.startsWith('GET /poll') || (isForgotten && used.has(connection.number));
      if (isSilent) return connection.closed();
      used.add(connection.number);
      await connection.write(KEPT);
    }
  };
  const { send, connections } = await scene(forgetting, { connections: 5, timeouts: { response: 2_000 } });
  await Promise.all([send(), send(), send(), send()]);
  await until(() => connections.stats.free === 4);
  const poll = send({ target: '/poll' });
  await until(() => connections.stats.running === 1);
  expect((await send()).kind).toBe('answered');
  isForgotten = true;
  const first = send();
  await until(() => connections.stats.running === 2);
  expect((await send({ freshConnection: true })).kind).toBe('answered');
  expect(connections.stats.free).toBe(2);
  await until(() => connections.stats.free === 1);
  expect(connections.stats.running).toBe(2);
  expect([(await poll).kind, (await first).kind]).toEqual(['upstream-timeout', 'upstream-timeout']);
});

test('a slow response closes no idle connection while another kept one serves', async () => {
  const slow = async (connection: UpstreamConnection): Promise<void> => {
    for (let head = await connection.request(); head !== undefined; head = await connection.request()) {
      if (head.startsWith('GET /slow')) return connection.closed();
      await connection.write(KEPT);
    }
  };
  const { send, connections } = await scene(slow, { connections: 3, timeouts: { response: 400 } });
  await Promise.all([send(), send(), send()]);
  await until(() => connections.stats.free === 3);
  const waiting = send({ target: '/slow' });
  await until(() => connections.stats.running === 1);
  expect((await send()).kind).toBe('answered');
  expect((await waiting).kind).toBe('upstream-timeout');
  expect(connections.stats.free).toBe(2);
});
