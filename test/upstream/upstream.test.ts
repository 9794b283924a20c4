import type { RequestListener, ServerResponse } from 'node:http';
import { Socket } from 'node:net';
import { setImmediate as turn } from 'node:timers/promises';
import { afterEach, describe, expect, jest, test } from '@jest/globals';
import { GatewayError } from '../../src/base/errors.ts';
import { MemoryChallengeStore } from '../../src/challenges/store/memory.ts';
import { addressMissing } from '../../src/transport/errors.ts';
import { BodyMemory } from '../../src/transport/request-body.ts';
import type { ActiveRequest } from '../../src/upstream/client-request.ts';
import type { UpstreamAddress } from '../../src/upstream/upstream-address.ts';
import { aged, parked, turns } from '../support/challenges.ts';
import { closing } from '../support/closing.ts';
import { until } from '../support/until.ts';
import { setOf, type UpstreamScene, useUpstreams } from './upstream-scene.ts';

afterEach(() => {
  jest.useRealTimers();
});
const { listen, closedPort, open } = useUpstreams();

const NOT_FAKED = [
  ...(['Date', 'hrtime', 'nextTick', 'performance', 'queueMicrotask', 'setImmediate'] as const),
  ...(['clearImmediate'] as const),
];
const FAILBACK_MS = 30_000;
const GONE = 'upstream-unreachable';
const OPEN = 'upstream-circuit-open';
/** The client of requests that name no other one. */
const CLIENT = 'a';

/** A server that serves, and names itself in its status. */
const serving =
  (status = 200): RequestListener =>
  (req, res) => {
    req.resume().on('end', () => res.writeHead(status).end('body'));
  };

/** A server that holds its responses, but for `/free`, until a test sends them; `release`: all, and those to come. */
function holding() {
  const held: ServerResponse[] = [];
  let isReleased = false;
  const listener: RequestListener = (req, res) => {
    if (isReleased || req.url === '/free') req.resume().on('end', () => res.end());
    else held.push(res);
  };
  const release = (): void => {
    isReleased = true;
    for (const res of held) res.end();
  };
  return { held, listener, release };
}

/** Opens the circuit of an address. */
function failTwice(address: UpstreamAddress | undefined): void {
  for (const _ of [1, 2]) address?.failed(new GatewayError(GONE, 'gone'), true, CLIENT);
}

describe('with several addresses, a request', () => {
  test('goes on at the next one where this host has no port for the first', async () => {
    const scene = open({ origins: [await closedPort(), await listen(serving())] });
    const connect = jest.spyOn(Socket.prototype, 'connect').mockImplementationOnce(function (this: Socket) {
      return this.destroy(Object.assign(new Error('connect'), { code: 'EADDRNOTAVAIL' }));
    });
    closing.push(() => connect.mockRestore());
    expect(await scene.send()).toBe(200);
  });

  test('goes on at the next one where the first takes no connection, which is not preferred then', async () => {
    const scene = open({ origins: [await closedPort(), await listen(serving())] });
    expect(scene.upstream.preferred).toBe(scene.upstream.addresses[0]);
    expect(await scene.send()).toBe(200);
    expect(scene.events).toEqual(['1 failing closed', '2 healthy closed']);
    expect(scene.upstream.preferred).toBe(scene.upstream.addresses[1]);
    expect(scene.upstream.addresses.map(({ exchanges }) => exchanges)).toEqual([1, 1]);
    // Now at once.
    expect(await scene.send({ method: 'POST', text: 'four' })).toBe(200);
    expect(scene.upstream.addresses.map(({ exchanges }) => exchanges)).toEqual([1, 2]);
  });

  test('goes on with a body that was not sent, too', async () => {
    const scene = open({ origins: [await closedPort(), await listen(serving())] });
    expect(await scene.send({ method: 'POST', text: 'four' })).toBe(200);
  });

  test('does not go on after the upstream may have acted on it', async () => {
    const breaking: RequestListener = (req) => void req.socket.resetAndDestroy();
    const scene = open({ origins: [await listen(breaking), await listen(serving())] });
    expect(await scene.send({ method: 'POST' })).toBe(GONE);
    expect(scene.upstream.addresses.map(({ exchanges }) => exchanges)).toEqual([1, 0]);
  });

  test('tries each once, and fails when none is there', async () => {
    const circuit = { failures: 0.5, minimum: 9, window: 10_000, open: 5_000, statuses: [] };
    const scene = open({ origins: [await closedPort(), await closedPort()], circuit });
    for (const times of [1, 2]) {
      expect(await scene.send()).toBe(GONE);
      expect(scene.upstream.addresses.map(({ exchanges }) => exchanges)).toEqual([times, times]);
    }
  });

  test('does not go on at one that admits no requests', async () => {
    const scene = open({ origins: [await closedPort(), await listen(serving())] });
    failTwice(scene.upstream.addresses[1]);
    expect(await scene.send()).toBe(GONE);
    expect(scene.upstream.addresses.map(({ exchanges }) => exchanges)).toEqual([1, 2]);
  });

  test('leaves one alone for a while that has failed, although it serves again', async () => {
    const scene = open({ origins: ['http://127.0.0.1:1', 'http://127.0.0.1:2'] });
    const [first, second] = scene.upstream.addresses;
    first?.state.failed('connection', 'gone', CLIENT);
    first?.state.responded(200, CLIENT);
    expect(scene.upstream.preferred).toBe(second);
  });

  test('prefers one that is settled, then one that is not failing, then the first', async () => {
    const scene = open({ origins: ['http://127.0.0.1:1', 'http://127.0.0.1:2', 'http://127.0.0.1:3'] });
    const { addresses } = scene.upstream;
    const states = addresses.map(({ state }) => state);
    const preferred = (): number => addresses.indexOf(scene.upstream.preferred) + 1;
    states[0]?.failed('connection', 'gone', CLIENT);
    expect(preferred()).toBe(2);
    states[1]?.failed('connection', 'gone', CLIENT);
    states[2]?.failed('connection', 'gone', CLIENT);
    expect(preferred()).toBe(1);
    states[2]?.responded(200, CLIENT);
    expect(preferred()).toBe(3);
    states[0]?.responded(200, CLIENT);
    expect(preferred()).toBe(1);
    states[1]?.responded(200, CLIENT);
    scene.clock.ahead += FAILBACK_MS;
    for (const _ of [1, 2, 3]) states[0]?.failed('connection', 'gone', CLIENT);
    expect(preferred()).toBe(2);
  });
});

describe('the circuit', () => {
  test('of one address opens: requests are refused for its time, and those that wait, too', async () => {
    const scene = open({ origins: [await closedPort()] });
    expect([await scene.send(), await scene.send()]).toEqual([GONE, GONE]);
    expect(scene.events).toEqual(['1 failing closed', '1 failing open']);
    expect(await scene.error()).toMatchObject({
      code: OPEN,
      retryAfter: 5,
    });
    scene.clock.ahead += 4_000;
    // Before its body is read.
    expect(await scene.error({ method: 'POST', text: 'four' })).toMatchObject({ code: OPEN, retryAfter: 1 });
    expect(scene.opened()).toBe(0);
  });

  test('of each of several: the error names the shortest time', async () => {
    const scene = open({ origins: [await closedPort(), await closedPort()] });
    await scene.send();
    await scene.send();
    scene.clock.ahead += 1_500;
    expect(scene.upstream.addresses.map(({ state }) => state.status.circuit)).toEqual(['open', 'open']);
    expect(await scene.error()).toMatchObject({
      code: OPEN,
      retryAfter: 4,
    });
    expect(await scene.error({ method: 'POST', text: 'four' })).toMatchObject({ code: OPEN });
  });

  test('of each of several, the last of which opened much later: the error names the time of the first', async () => {
    const circuit = { failures: 0.5, minimum: 2, window: 10_000, open: 500_000, statuses: [] };
    const scene = open({ origins: ['http://127.0.0.1:1', 'http://127.0.0.1:2'], circuit });
    const [first, second] = scene.upstream.addresses;
    failTwice(first);
    scene.clock.ahead += 300_000;
    failTwice(second);
    expect((await scene.error()).retryAfter).toBeLessThanOrEqual(200);
  });

  test('refuses the requests that wait for a connection when it opens', async () => {
    const { held, listener, release } = holding();
    const scene = open({ origins: [await listen(listener)], connections: 1 });
    const first = scene.send();
    await until(() => held.length === 1);
    const waiting = [scene.send(), scene.send()];
    const [address] = scene.upstream.addresses;
    await until(() => address?.connections.stats.pending === 2);
    // Another change leaves them where they are.
    address?.responded(200, CLIENT);
    expect(address?.connections.stats.pending).toBe(2);
    for (const _ of [1, 2, 3]) address?.failed(new GatewayError(GONE, 'gone'), true, CLIENT);
    expect(await Promise.all(waiting)).toEqual([OPEN, OPEN]);
    release();
    expect(await first).toBe(200);
  });

  test('lets one request through when its time is over, whose response closes it', async () => {
    const { held, listener } = holding();
    const scene = open({ origins: [await listen(listener)] });
    const [address] = scene.upstream.addresses;
    failTwice(address);
    scene.clock.ahead += 5_000;
    const trial = scene.send();
    await until(() => held.length === 1);
    expect(scene.events.at(-1)).toBe('1 failing half-open');
    expect(await scene.send()).toBe(OPEN);
    held[0]?.end();
    expect(await trial).toBe(200);
    expect(scene.events.at(-1)).toBe('1 healthy closed');
  });

  test('lets another request through when the first showed nothing', async () => {
    const { held, listener } = holding();
    const scene = open({ origins: [await listen(listener)] });
    const [address] = scene.upstream.addresses;
    failTwice(address);
    scene.clock.ahead += 5_000;
    const left = scene.request();
    const trial = scene.upstream.send(left, 'c');
    await until(() => held.length === 1);
    left.cancellation.cancel(new GatewayError('client-closed', 'gone'));
    await expect(trial).rejects.toMatchObject({ code: 'client-closed' });
    scene.upstream.end(left);
    const second = scene.send();
    await until(() => held.length === 2);
    held[1]?.end();
    expect(await second).toBe(200);
  });

  test('says nothing of a lack of local addresses', async () => {
    const scene = open({ origins: ['http://127.0.0.1:1'] });
    const [address] = scene.upstream.addresses;
    const lacking = addressMissing(Object.assign(new Error('bind'), { code: 'EADDRNOTAVAIL' }));
    for (const _ of [1, 2, 3]) address?.failed(lacking, false, CLIENT);
    expect([scene.events, address?.exchanges]).toEqual([[], 3]);
  });
});

describe('bodies', () => {
  test('are kept until the response has come, and their memory is given back once', async () => {
    const { held, listener } = holding();
    const scene = open({ origins: [await listen(listener)] });
    const request = scene.request({ method: 'POST', text: 'four' });
    const sending = scene.upstream.send(request, 'c');
    await until(() => held.length === 1);
    expect(scene.memory.used).toBeGreaterThan(0);
    held[0]?.end('body');
    await (await sending).skip();
    scene.upstream.end(request);
    scene.upstream.end(request);
    expect(scene.memory.used).toBe(0);
  });

  test('that find no memory take half of the connections at most', async () => {
    const { held, listener, release } = holding();
    const deps = { bodyMemory: new BodyMemory(0) };
    const scene = open({ origins: [await listen(listener)], connections: 3 }, { deps });
    const post = { method: 'POST', text: 'four' };
    // Neither requests without a body nor longer bodies count, which are streamed anyway.
    for (const options of [{}, { method: 'POST', text: 'longer than sixteen' }])
      for (const _ of [1, 2, 3]) expect(await scene.send({ ...options, target: '/free' })).toBe(200);
    const sending = [scene.send(post), scene.send(post)];
    await until(() => held.length === 2);
    expect(await scene.error(post)).toMatchObject({
      code: 'overloaded',
      detail: expect.stringContaining('bodyMemory'),
    });
    sending.push(scene.send());
    await until(() => held.length === 3);
    release();
    expect(await Promise.all(sending)).toEqual([200, 200, 200]);
    expect(await scene.send(post)).toBe(200);
  });

  test('that are too long to be kept may take every connection', async () => {
    const { held, listener, release } = holding();
    const deps = { bodyMemory: new BodyMemory(0) };
    const scene = open({ origins: [await listen(listener)], connections: 2 }, { deps });
    const long = { method: 'POST', text: 'longer than sixteen' };
    const sending = [scene.send(long), scene.send(long)];
    await until(() => held.length === 2);
    release();
    expect(await Promise.all(sending)).toEqual([200, 200]);
  });

  test('of a client with too many requests are not read', async () => {
    const { held, listener, release } = holding();
    const scene = open({ origins: [await listen(listener)], connections: 1 });
    const sending = Array.from({ length: 17 }, () => scene.send());
    await until(() => held.length === 1);
    expect(await scene.send({ method: 'POST', text: 'four' })).toBe('overloaded');
    expect(scene.opened()).toBe(0);
    release();
    expect(new Set(await Promise.all(sending))).toEqual(new Set([200]));
  });
});

describe('a request that ends', () => {
  test('is counted with its duration, and one whose response is left is no success', async () => {
    const scene = open({ origins: [await listen(serving())] });
    const attempts = (result: string) =>
      scene.metric(new RegExp(`upstream_attempts_total{.*result="${result}"`));
    await scene.send();
    expect([await attempts('ok'), await attempts('error')]).toEqual([1, 0]);
    const { held, listener } = holding();
    const slow = open({ origins: [await listen(listener)] });
    slow.clock.ahead = 1e9;
    const request = slow.request();
    const sending = slow.upstream.send(request, 'c');
    await until(() => held.length === 1);
    held[0]?.write('part');
    const response = await sending;
    slow.clock.ahead += 2_000;
    slow.upstream.end(request);
    expect(await slow.metric(/upstream_attempts_total{.*result="error"/)).toBe(1);
    const seconds = await slow.metric(/upstream_duration_seconds_sum/);
    expect([seconds >= 2, seconds < 1_000]).toEqual([true, true]);
    await expect(response.skip()).rejects.toThrow('was not read');
  });

  test('is over at once when its response is whole at its head', async () => {
    const scene = open({ origins: [await listen((_req, res) => res.writeHead(204).end())] });
    const request = scene.request();
    expect((await scene.upstream.send(request, 'c')).status).toBe(204);
    expect(request.ended).toBe(true);
  });

  test('before it was sent has no duration', async () => {
    const scene = open({ origins: ['http://127.0.0.1:1'] });
    failTwice(scene.upstream.addresses[0]);
    expect(await scene.send()).toBe(OPEN);
    expect(await scene.metric(/upstream_duration_seconds_count/)).toBe(0);
    expect(await scene.metric(/upstream_duration_seconds_sum/)).toBe(0);
  });

  test('leaves its place to another one of its client', async () => {
    const scene = open({ origins: [await listen(serving())], connections: 1 });
    for (let count = 1; count <= 18; count += 1) expect(await scene.send()).toBe(200);
  });

  test('counts for the retries that all requests share', () => {
    const scene = open({ origins: ['http://127.0.0.1:1'], retry: { attempts: 1, budget: 31 } });
    failTwice(scene.upstream.addresses[0]);
    const take = (): boolean => scene.upstream.retries.take('connection_broke', CLIENT);
    const request = scene.request();
    const sending = scene.upstream.send(request, 'c');
    expect(Array.from({ length: 32 }, take)).toEqual([...Array(31).fill(true), false]);
    scene.upstream.end(request);
    return expect(sending).rejects.toMatchObject({ code: OPEN });
  });

  test('in time is not cancelled later', async () => {
    const scene = open({ origins: [await listen(serving())] });
    jest.useFakeTimers({ doNotFake: [...NOT_FAKED, 'setInterval', 'clearInterval'] });
    const request = scene.request();
    const response = await scene.upstream.send(request, 'c');
    await response.skip();
    scene.upstream.end(request);
    scene.clock.ahead += 60_000;
    jest.advanceTimersByTime(60_000);
    expect(request.cancellation.reason).toBeUndefined();
  });

  test('later than its total timeout is cancelled, unless it may take longer', async () => {
    const { listener, release } = holding();
    const scene = open({ origins: [await listen(listener)], totalTimeout: 20 });
    const endless = { ...scene.request(), noTotalTimeout: true } as ActiveRequest;
    const sending = scene.upstream.send(endless, 'c');
    expect(await scene.send()).toBe('upstream-timeout');
    release();
    expect((await sending).status).toBe(200);
    scene.upstream.end(endless);
  });

  test('is waited for by the end of the upstream until its response has been passed on', async () => {
    const { held, listener } = holding();
    const scene = open({ origins: [await listen(listener)] });
    const request = scene.request();
    const sending = scene.upstream.send(request, 'c');
    await until(() => held.length === 1);
    held[0]?.write('part');
    const response = await sending;
    const ended: string[] = [];
    const closing = scene.upstream.close().then(() => ended.push('upstream'));
    held[0]?.end();
    await response.skip();
    await turn();
    ended.push('request');
    scene.upstream.end(request);
    await closing;
    expect(ended).toEqual(['request', 'upstream']);
  });

  test('is waited for by the end of the addresses', async () => {
    const { held, listener } = holding();
    const scene = open({ origins: [await listen(listener)] });
    const ended: string[] = [];
    const sending = scene.send().then(() => ended.push('request'));
    await until(() => held.length === 1);
    const closing = scene.upstream.close().then(() => ended.push('upstream'));
    held[0]?.end();
    await Promise.all([sending, closing]);
    expect(ended).toEqual(['request', 'upstream']);
  });
});

describe('responses', () => {
  const PAUSING = { name: 'throttled', status: [429], pause: 5_000 };

  test('have outcomes, one of which pauses the deployment', async () => {
    const scene = open({ origins: [await listen(serving(429))], outcomes: [PAUSING] });
    const request = scene.request();
    expect((await scene.upstream.send(request, 'c')).outcome).toBe('throttled');
    scene.upstream.end(request);
    expect(await scene.error()).toMatchObject({
      code: 'upstream-paused',
      retryAfter: 5,
    });
  });

  test.each<[string, number | string, string[]]>([
    ['GET', 200, ['127.0.0.2 refused']],
    // It may have had an effect.
    ['POST', 403, ['127.0.0.2 refused']],
  ])('that refuse the local address: a %s gets %s', async (method, expected, events) => {
    const refusing: RequestListener = (req, res) =>
      serving(req.socket.remoteAddress === '127.0.0.2' ? 403 : 200)(req, res);
    const scene = open(
      {
        origins: [await listen(refusing)],
        egress: { localAddresses: ['127.0.0.2', '127.0.0.3'], failback: 60_000, proxy: undefined },
        outcomes: [{ name: 'unregistered', status: [403], egress: 'next' }],
      },
      { deps: { isPresent: () => Promise.resolve(true) } },
    );
    const request = scene.request({ method });
    const response = await scene.upstream.send(request, 'c');
    expect([response.status, request.facts.egress]).toEqual([
      expected,
      expected === 200 ? '127.0.0.3' : '127.0.0.2',
    ]);
    scene.upstream.end(request);
    expect(scene.events.filter((event) => event.endsWith('refused'))).toEqual(events);
    const { addressesInUse, addresses, preferred } = scene.upstream;
    expect([addressesInUse, preferred]).toEqual([[addresses[1]], addresses[1]]);
    // From then on at once.
    const next = scene.request();
    await scene.upstream.send(next, 'c');
    scene.upstream.end(next);
    expect(next.facts.egress).toBe('127.0.0.3');
  });

  test('that refuse the local address are passed on where no other one admits requests', async () => {
    const scene = open(
      {
        origins: [await listen(serving(403))],
        egress: { localAddresses: ['127.0.0.2', '127.0.0.3'], failback: 60_000, proxy: undefined },
        outcomes: [{ name: 'unregistered', status: [403], egress: 'next' }],
      },
      { deps: { isPresent: () => Promise.resolve(true) } },
    );
    failTwice(scene.upstream.addresses[1]);
    expect(await scene.send()).toBe(403);
    expect(await scene.send()).toBe(OPEN);
  });
});

describe('with several local addresses', () => {
  const isPresent = (): Promise<boolean> => Promise.resolve(true);
  const UNREGISTERED = { name: 'unregistered', status: [403], egress: 'next' } as const;
  const egressOf = (...localAddresses: string[]) => ({
    localAddresses,
    failback: 60_000,
    proxy: undefined,
  });

  test('it is looked which of them this host has, at once and every 5 s until the end', async () => {
    jest.useFakeTimers({ doNotFake: [...NOT_FAKED, 'setTimeout', 'clearTimeout'] });
    let isThere = false;
    const asked: string[] = [];
    const deps = {
      isPresent: async (address: string) => {
        asked.push(address);
        return isThere;
      },
    };
    const origins = ['http://127.0.0.1:1'];
    const scene = open({ origins, egress: egressOf('127.0.0.2', '127.0.0.3') }, { deps });
    const one = open({ origins, egress: egressOf('127.0.0.4') }, { deps });
    await turn();
    expect(scene.events).toEqual(['127.0.0.2 missing', '127.0.0.3 missing']);
    isThere = true;
    jest.advanceTimersByTime(5_000);
    await turn();
    expect(scene.events.slice(2)).toEqual(['127.0.0.2 in-use', '127.0.0.3 standby']);
    await scene.upstream.close();
    jest.advanceTimersByTime(5_000);
    await turn();
    expect(asked).toEqual(['127.0.0.2', '127.0.0.3', '127.0.0.2', '127.0.0.3']);
    expect(one.events).toEqual([]);
  });

  test('one that was refused is tried by a request that can be repeated, and used again if that is served', async () => {
    let isRegistered = false;
    const refusing: RequestListener = (req, res) =>
      serving(req.socket.remoteAddress === '127.0.0.2' && !isRegistered ? 403 : 200)(req, res);
    const egress = egressOf('127.0.0.2', '127.0.0.3');
    const scene = open(
      { origins: [await listen(refusing)], egress, outcomes: [UNREGISTERED] },
      { deps: { isPresent } },
    );
    expect(await scene.sendFrom()).toBe('200 from 127.0.0.3');
    isRegistered = true;
    scene.clock.ahead += 60_000;
    expect(await scene.sendFrom({ method: 'POST', text: 'four' })).toBe('200 from 127.0.0.3');
    expect(await scene.sendFrom({ method: 'PUT', text: 'longer than sixteen' })).toBe('200 from 127.0.0.3');
    expect(await scene.sendFrom()).toBe('200 from 127.0.0.2');
    expect(await scene.sendFrom()).toBe('200 from 127.0.0.2');
  });

  test('the response of the last one is passed on if the upstream refuses each', async () => {
    const egress = egressOf('127.0.0.2', '127.0.0.3');
    const origins = [await listen(serving(403))];
    const scene = open({ origins, egress, outcomes: [UNREGISTERED] }, { deps: { isPresent } });
    expect(await scene.sendFrom()).toBe('403 from 127.0.0.3');
  });

  test('a request goes on from the next one where any of the addresses of the upstream admits it', async () => {
    const refusing: RequestListener = (req, res) =>
      serving(req.socket.remoteAddress === '127.0.0.2' ? 403 : 200)(req, res);
    const egress = egressOf('127.0.0.2', '127.0.0.3');
    const origins = [await listen(refusing), await listen(refusing)];
    const scene = open({ origins, egress, outcomes: [UNREGISTERED] }, { deps: { isPresent } });
    failTwice(scene.upstream.addresses[2]);
    expect(await scene.sendFrom()).toBe('200 from 127.0.0.3');
    expect(scene.upstream.addresses.map(({ exchanges }) => exchanges)).toEqual([1, 0, 2, 1]);
  });

  test('a request that the host cannot send is refused where no address of the upstream admits it', async () => {
    // Of a network for documentation (RFC 5737): nobody's.
    const egress = egressOf('192.0.2.1', '127.0.0.3');
    const origins = [await listen(serving()), await listen(serving())];
    const scene = open({ origins, egress }, { deps: { isPresent } });
    for (const address of scene.upstream.addresses.slice(2)) failTwice(address);
    expect(await scene.send()).toBe(OPEN);
    // The other address of the upstream is no way out.
    expect(scene.upstream.addresses.map(({ exchanges }) => exchanges)).toEqual([1, 0, 2, 2]);
  });
});

describe('credentials', () => {
  test('are those that were given, and one that is new is used at once', async () => {
    const scene = open({ origins: [await listen(serving()), await closedPort()] });
    const { addresses } = scene.upstream;
    const used = (): (readonly string[])[] =>
      addresses.map(({ credentials }) => credentials.map(({ credential }) => credential));
    expect(used()).toEqual([['c'], ['c']]);
    await expect(scene.send({ credential: 'other' })).rejects.toThrow('deployment d has no credential other');
    scene.upstream.use(setOf('other', '7'));
    expect(await scene.send({ credential: 'other' })).toBe(200);
    expect(addresses[0]?.has({ credential: 'other', version: '7' })).toBe(true);
    expect(addresses[0]?.has({ credential: 'other', version: '8' })).toBe(false);
    expect(addresses[0]?.has({ credential: 'none', version: '7' })).toBe(false);
    scene.upstream.keepOnly(new Set(['other']));
    expect(used()).toEqual([['other'], ['other']]);
  });

  test('have versions, of which another one is promoted at every address', async () => {
    const scene = open({ origins: [await closedPort(), await closedPort()] });
    const { addresses } = scene.upstream;
    const second = setOf('c', '2');
    for (const address of addresses) address.offer({ ...setOf(), next: second.current });
    const states = () =>
      addresses.map(({ credentials }) =>
        credentials.map(({ credential, version, state, inUse, serves, rejected }) =>
          [credential, version, state, inUse, serves, rejected].join(' '),
        ),
      );
    const before = ['c 1 in-use true true false', 'c 2 candidate false true false'];
    expect(states()).toEqual([before, before]);
    for (const address of addresses) {
      address.promote({ credential: 'c', version: '2' });
      address.promote({ credential: 'none', version: '2' });
    }
    const after = ['c 2 in-use true true false', 'c 1 fallback false true false'];
    expect(states()).toEqual([after, after]);
    const [address] = addresses;
    expect(address?.pools.map(({ policy }) => policy)).toEqual(['shared']);
    for (const address of addresses) address.offer({ ...second, current: setOf('c', '3').current });
    address
      ?.credential('c')
      ?.versions.all.slice(1)
      .forEach((each) => {
        address.credential('c')?.versions.reject(each);
      });
    expect(states()[0]).toEqual(['c 2 in-use true true false', 'c 3 refused false true true']);
  });

  test('begin with the nonces that other processes share, and leave theirs at the end', async () => {
    const store = new MemoryChallengeStore();
    const { upstream } = open({ origins: [await closedPort()] }, { store });
    const [address] = upstream.addresses;
    const key = address?.credential('c')?.versions.inUse.key ?? '';
    await store.replace(key, undefined, aged('n'), 60_000);
    await address?.restore();
    expect(address?.pools.map(({ known }) => known?.challenge.nonce)).toEqual(['n']);
    await upstream.close();
    expect(address?.pools).toEqual([]);
  });

  test('that are new begin with shared nonces, and those that are dropped leave theirs', async () => {
    const store = new MemoryChallengeStore();
    const { upstream } = open({ origins: [await closedPort(), await closedPort()] }, { store });
    const { addresses } = upstream;
    const versionOf = (name: string) => addresses[0]?.credential(name)?.versions.inUse;
    upstream.use(setOf('other', '7'));
    const key = versionOf('other')?.key ?? '';
    upstream.keepOnly(new Set(['c']));
    await turns();
    expect(addresses.map(({ pools }) => pools.length)).toEqual([1, 1]);
    await store.park(key, parked('n', 3), 60_000);
    upstream.use(setOf('other', '7'));
    await turns();
    const nonces = (): (string | undefined)[] | undefined =>
      addresses[0]?.pools.map(({ known }) => known?.challenge.nonce);
    expect(nonces()).toEqual([undefined, 'n']);
    upstream.keepOnly(new Set(['c']));
    await turns();
    expect([nonces(), await store.take(key)]).toMatchObject([[undefined], { challenge: { nonce: 'n' } }]);
  });

  describe('that are dropped while a request with them is under way', () => {
    const names = ({ upstream }: UpstreamScene): string[] =>
      upstream.addresses.flatMap(({ credentials }) => credentials.map(({ credential }) => credential));

    /** A request at the first address of two, which breaks its connection later. */
    const underWay = async () => {
      const { held, listener } = holding();
      const scene = open({ origins: [await listen(listener), await listen(serving())] });
      const response = scene.send();
      await until(() => held.length === 1);
      const end = (): void => void held[0]?.socket?.resetAndDestroy();
      return { scene, response, end };
    };

    test('serve it at another address, and leave then', async () => {
      const { scene, response, end } = await underWay();
      scene.upstream.keepOnly(new Set());
      expect(names(scene)).toEqual(['c', 'c']);
      end();
      expect(await response).toBe(200);
      await turns();
      expect(names(scene)).toEqual([]);
    });

    test('stay if they are used again before it ends', async () => {
      const { scene, response, end } = await underWay();
      scene.upstream.keepOnly(new Set());
      scene.upstream.use(setOf());
      end();
      expect(await response).toBe(200);
      await turns();
      expect(names(scene)).toEqual(['c', 'c']);
      expect(await scene.send()).toBe(200);
    });
  });

  test('are tested at the preferred address', async () => {
    const asked: string[] = [];
    const challenging: RequestListener = (req, res) => {
      asked.push(`${req.method} ${req.url}`);
      if (req.headers.authorization === undefined)
        res.writeHead(401, { 'www-authenticate': 'Digest realm="r", nonce="n"' });
      res.end();
    };
    const { upstream } = open({ origins: [await listen(challenging), await closedPort()] });
    expect(await upstream.preferred.testVersion({ credential: 'c', version: '1' }, '/t')).toBe('accepted');
    expect(asked).toEqual(['HEAD /neutral', 'HEAD /neutral']);
    expect(await upstream.preferred.testVersion({ credential: 'c', version: '2' }, '/t')).toBe('unknown');
    expect(await upstream.preferred.testVersion({ credential: 'none', version: '1' }, '/t')).toBe('unknown');
  });
});

describe('checks', () => {
  test('show the state of an address that no request uses, until they end', async () => {
    const counted = async () => {
      const seen = { checks: 0 };
      const origin = await listen(({ url }, res) => {
        if (url === '/health') seen.checks += 1;
        res.writeHead(500).end();
      });
      const scene = open({ origins: [origin], health: { interval: 10, path: '/health', failback: 1 } });
      return { seen, ...scene };
    };
    const [ended, other] = [await counted(), await counted()];
    await until(() => ended.seen.checks > 1 && other.seen.checks > 1);
    expect(ended.events).toEqual(['1 failing closed']);
    expect(ended.upstream.preferred.state.reason).toContain('500');
    await ended.upstream.close();
    const othersMore = async (): Promise<void> => {
      const { checks } = other.seen;
      await until(() => other.seen.checks > checks + 3);
    };
    // One that was sent before the end may arrive after it.
    await othersMore();
    const before = ended.seen.checks;
    await othersMore();
    expect(ended.seen.checks).toBe(before);
  });

  test('only connect where no path is configured', async () => {
    const requests: unknown[] = [];
    const origin = await listen((req, res) => {
      requests.push(req.url);
      res.end();
    });
    const scene = open({ origins: [origin], health: { interval: 10, failback: 1 } });
    await until(() => scene.events.length > 0);
    expect([scene.events, requests]).toEqual([['1 healthy closed'], []]);
  });

  test.each([
    ['that was sent', true, 'failing'],
    ['that was not sent', false, 'healthy'],
  ])('of the connection do not make up at once for a request %s', async (_what, sent, health) => {
    const { upstream } = open({ origins: [await closedPort()] });
    const [address] = upstream.addresses;
    address?.failed(new GatewayError(GONE, 'gone'), sent, CLIENT);
    address?.state.checked('connection');
    expect(address?.state.status.health).toBe(health);
  });
});
