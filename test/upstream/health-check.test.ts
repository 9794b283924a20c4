import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { Cancellation } from '../../src/base/cancellation.ts';
import { GatewayError } from '../../src/base/errors.ts';
import type { Message } from '../../src/handshake/exchange.ts';
import { UpstreamResponse } from '../../src/handshake/response.ts';
import { upstreamError, waitedTooLong } from '../../src/transport/errors.ts';
import { AddressState, type StatusChange } from '../../src/upstream/address-state.ts';
import { CheckPace, checkAddress } from '../../src/upstream/health-check.ts';
import { answered, lost, type Reply, ScriptedSource, unauthorized } from '../handshake/scene.ts';

const INTERVAL = 10_000;
const clock = { now: () => Date.now() };
const CIRCUIT = { failures: 0.5, minimum: 20, window: 10_000, open: 5_000, statuses: [] };
const HEALTH = { interval: INTERVAL, failback: 30_000 };
const CLIENT = 'reporting';
const ended = new GatewayError('draining', 'ended');
let checks = new Cancellation();

beforeEach(() => {
  jest.useFakeTimers();
  checks = new Cancellation();
});
afterEach(() => {
  checks.cancel(ended);
  jest.useRealTimers();
});

interface SceneOptions {
  readonly addresses?: number;
  /** Decides on each connection. */
  readonly works?: () => boolean | Promise<boolean>;
  /** Of the request that a check sends; left out: it only connects. */
  readonly path?: string;
  /** The response to a request. */
  readonly reply?: Reply;
}

/** So many addresses with checks. */
function scene({ addresses = 1, works = () => true, path, reply }: SceneOptions = {}) {
  const pace = new CheckPace(clock);
  const times: number[] = [];
  const messages: (Omit<Message, 'request'> & { client: string })[] = [];
  const connections = {
    connect: async () => {
      times.push(Date.now());
      if (!(await works())) throw new GatewayError('upstream-unreachable', 'no connection');
    },
    check: async (message: Message) => {
      if (reply === undefined) throw new Error('no request was to be sent');
      const { request, ...sent } = message;
      messages.push({ ...sent, client: request.client });
      return reply(message);
    },
  };
  const changes: StatusChange[] = [];
  const check = async (state: AddressState): Promise<void> => {
    const options = path === undefined ? { interval: INTERVAL } : { interval: INTERVAL, path };
    for await (const change of checkAddress(state, options, connections, pace, checks)) changes.push(change);
  };
  const states = Array.from({ length: addresses }, () => new AddressState(CIRCUIT, HEALTH, clock));
  const all = Promise.all(states.map(check));
  const pass = (ms: number): Promise<void> => jest.advanceTimersByTimeAsync(ms);
  return { times, messages, states, changes, all, pass };
}

describe('an address is checked', () => {
  test('soon after the start, then in about equal intervals', async () => {
    const { times, pass } = scene();
    await pass(1_100);
    expect(times).toHaveLength(1);
    await pass(11_000);
    const [first = 0, second = 0] = times;
    expect(second - first).toBeGreaterThanOrEqual(0.9 * INTERVAL - 1);
  });

  test('not while client requests show its state', async () => {
    const { times, states, pass } = scene();
    await pass(1_100);
    for (let step = 0; step < 60; step += 1) {
      states[0]?.responded(200, CLIENT);
      await pass(1_000);
    }
    expect(times).toHaveLength(1);
    await pass(2 * 11_000);
    expect(times.length).toBeGreaterThan(1);
  });

  test('again soon when a check of a healthy address failed, until it counts as failing', async () => {
    let works = true;
    const { times, states, changes, pass } = scene({ works: () => works });
    await pass(1_100);
    works = false;
    // 9 to 11 s to the first failure, then about 1 s each to the others.
    await pass(11_000 + 2 * 1_200);
    expect(states[0]?.status.health).toBe('failing');
    expect(changes.map(({ after }) => after.health)).toEqual(['healthy', 'failing']);
    const [first = 0, second = 0, third = 0] = times.slice(1);
    expect(Math.max(second - first, third - second)).toBeLessThan(1_200);
    await pass(4_000);
    expect(times).toHaveLength(4);
  });

  test('in its intervals while this host has no free file, which says nothing of the address and is no defect', async () => {
    const lack = Object.assign(new Error('connect EMFILE'), { code: 'EMFILE' });
    const { times, states, changes, pass } = scene({
      works: () => {
        throw upstreamError(lack);
      },
    });
    await pass(1_100 + 3 * 11_000);
    expect(changes).toEqual([]);
    expect(states[0]?.status.health).toBe('unknown');
    expect(times.length).toBeLessThanOrEqual(4);
  });

  test('in its intervals while clients have all its connections, which says nothing of the address', async () => {
    const { messages, states, changes, pass } = scene({
      path: '/health',
      reply: () => {
        throw waitedTooLong(1_000, 0);
      },
    });
    await pass(1_100 + 3 * 11_000);
    expect(changes).toEqual([]);
    expect(states[0]?.status.health).toBe('unknown');
    expect([3, 4]).toContain(messages.length);
  });

  test('by a connection of its own while clients have all the others: an address that accepts none is found', async () => {
    const { states, pass } = scene({
      path: '/health',
      works: () => false,
      reply: () => {
        throw waitedTooLong(1_000, 0);
      },
    });
    await pass(1_100 + 3 * 11_000);
    expect(states[0]?.status.health).toBe('failing');
  });

  test('not when they end while many of them wait for their turn', async () => {
    const { times, all, pass } = scene({ addresses: 200 });
    await pass(1_100);
    const begun = times.length;
    checks.cancel(ended);
    await all;
    expect([begun > 0, begun < 200, times.length]).toEqual([true, true, begun]);
  });

  test('no more once they end, which needs no timer', async () => {
    const { times, all, pass } = scene();
    await pass(1_100);
    checks.cancel(ended);
    await all;
    expect([times.length, jest.getTimerCount()]).toEqual([1, 0]);
  });

  test('at most 20 times per second in the whole process', async () => {
    const { times, pass } = scene({ addresses: 200 });
    await pass(1_000);
    expect(times.length).toBeLessThanOrEqual(21);
    await pass(30_000);
    const gaps = times.slice(1).map((at, index) => at - (times[index] ?? 0));
    // Timers count whole milliseconds.
    expect(Math.min(...gaps)).toBeGreaterThanOrEqual(49);
    expect(times.length).toBeGreaterThan(200);
  });
});

test('replicas that start together check at different times', async () => {
  const replicas = Array.from({ length: 40 }, () => scene());
  await replicas[0]?.pass(1_100);
  const times = replicas.flatMap((each) => each.times);
  expect(times).toHaveLength(40);
  expect(Math.max(...times) - Math.min(...times)).toBeGreaterThan(500);
});

test('a check that was under way when they ended shows nothing', async () => {
  const connection = Promise.withResolvers<boolean>();
  const { times, changes, all, pass } = scene({ works: () => connection.promise });
  await pass(1_100);
  checks.cancel(ended);
  connection.resolve(false);
  await all;
  expect([times.length, changes]).toEqual([1, []]);
});

describe('a response to a check', () => {
  test.each<[string, Reply, string]>([
    ['200 shows that the address serves', answered(200), ''],
    ['399 does, too', answered(399), ''],
    ['400 shows a failure', answered(400), 'The upstream answers 400 (health.path).'],
    ['401 with a Digest challenge serves', unauthorized('Digest realm="r", nonce="n"'), ''],
    [
      '401 without one does not',
      unauthorized('Basic realm="r"'),
      'The upstream answers 401 without a Digest challenge (health.path).',
    ],
    ['none is a failure', lost(), 'The connection broke.'],
  ])('%s', async (_what, reply, reason) => {
    const { messages, changes, pass } = scene({ path: '/health', reply });
    await pass(1_100);
    expect(messages).toEqual([{ method: 'GET', target: '/health', headers: [], body: null, client: '' }]);
    const health = reason === '' ? 'healthy' : 'failing';
    expect(changes).toMatchObject([{ after: { health }, reason }]);
  });

  test.each([
    [200, ['abandon']],
    [401, []],
  ])('%i is read to its end only where its connection is worth it', async (status, calls) => {
    const source = new ScriptedSource();
    const response = new UpstreamResponse(status, '', [], true, source);
    const reply = (): UpstreamResponse => {
      setTimeout(() => response.end([]), 1);
      return response;
    };
    const { changes, pass } = scene({ path: '/health', reply });
    await pass(1_100);
    expect([source.calls, changes.length]).toEqual([calls, 1]);
  });
});

test.each([
  ['a connection does not make up at once for requests that got no response', undefined, 'failing'],
  ['a response does', '/health', 'healthy'],
])('%s', async (_what, path, health) => {
  const { states, pass } = scene({ reply: answered(), ...(path !== undefined && { path }) });
  const [state] = states;
  state?.failed('request', 'late', CLIENT);
  // The first round passes by an address that requests have used.
  await pass(1_100 + 11_000);
  expect(state?.status.health).toBe(health);
});
