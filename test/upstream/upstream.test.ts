import type { RequestListener, ServerResponse } from 'node:http';
import { describe, expect, test } from '@jest/globals';
import { GatewayError } from '../../src/base/errors.ts';
import { MemoryChallengeStore } from '../../src/challenges/store/memory.ts';
import { addressMissing } from '../../src/transport/errors.ts';
import { BodyMemory } from '../../src/transport/request-body.ts';
import type { ActiveRequest } from '../../src/upstream/client-request.ts';
import { aged } from '../support/challenges.ts';
import { until } from '../support/until.ts';
import { setOf, useUpstreams } from './upstream-scene.ts';

const { listen, closedPort, open } = useUpstreams();

const FAILBACK_MS = 30_000;
const GONE = 'upstream-unreachable';
const OPEN = 'upstream-circuit-open';

/** A server that serves, and names itself in its status. */
const serving =
  (status = 200): RequestListener =>
  (req, res) => {
    req.resume().on('end', () => res.writeHead(status).end('body'));
  };

/** A server that holds its responses until a test sends them; `release`: all, and those to come. */
function holding() {
  const held: ServerResponse[] = [];
  let isReleased = false;
  const listener: RequestListener = (req, res) => {
    if (isReleased) req.resume().on('end', () => res.end());
    else held.push(res);
  };
  const release = (): void => {
    isReleased = true;
    for (const res of held) res.end();
  };
  return { held, listener, release };
}

describe('with several addresses, a request', () => {
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
    const scene = open({ origins: [await closedPort(), await closedPort()] });
    expect(await scene.send()).toBe(GONE);
    expect(scene.upstream.addresses.map(({ exchanges }) => exchanges)).toEqual([1, 1]);
  });

  test('prefers one that is settled, then one that is not failing, then the first', async () => {
    const scene = open({ origins: ['http://127.0.0.1:1', 'http://127.0.0.1:2', 'http://127.0.0.1:3'] });
    const { addresses } = scene.upstream;
    const states = addresses.map(({ state }) => state);
    const preferred = (): number => addresses.indexOf(scene.upstream.preferred) + 1;
    states[0]?.failed('connection', 'gone');
    expect(preferred()).toBe(2);
    states[1]?.failed('connection', 'gone');
    states[2]?.failed('connection', 'gone');
    expect(preferred()).toBe(1);
    states[2]?.responded(200);
    expect(preferred()).toBe(3);
    states[0]?.responded(200);
    expect(preferred()).toBe(1);
    states[1]?.responded(200);
    scene.clock.ahead += FAILBACK_MS;
    for (const _ of [1, 2, 3]) states[0]?.failed('connection', 'gone');
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
    address?.responded(200);
    expect(address?.connections.stats.pending).toBe(2);
    for (const _ of [1, 2, 3]) address?.failed(new GatewayError(GONE, 'gone'), true);
    expect(await Promise.all(waiting)).toEqual([OPEN, OPEN]);
    release();
    expect(await first).toBe(200);
  });

  test('lets one request through when its time is over, whose response closes it', async () => {
    const { held, listener } = holding();
    const scene = open({ origins: [await listen(listener)] });
    const [address] = scene.upstream.addresses;
    for (const _ of [1, 2]) address?.failed(new GatewayError(GONE, 'gone'), true);
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
    for (const _ of [1, 2]) address?.failed(new GatewayError(GONE, 'gone'), true);
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
    for (const _ of [1, 2, 3]) address?.failed(lacking, false);
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
    const request = slow.request();
    const sending = slow.upstream.send(request, 'c');
    await until(() => held.length === 1);
    held[0]?.write('part');
    const response = await sending;
    slow.clock.ahead += 2_000;
    slow.upstream.end(request);
    expect(await slow.metric(/upstream_attempts_total{.*result="error"/)).toBe(1);
    expect(await slow.metric(/upstream_duration_seconds_sum/)).toBeGreaterThanOrEqual(2);
    await expect(response.skip()).rejects.toThrow('was not read');
  });

  test('is over at once when its response is whole at its head', async () => {
    const scene = open({ origins: [await listen((_req, res) => res.writeHead(204).end())] });
    const request = scene.request();
    expect((await scene.upstream.send(request, 'c')).status).toBe(204);
    expect(request.ended).toBe(true);
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

  test('is waited for by the end of the upstream', async () => {
    const { held, listener } = holding();
    const scene = open({ origins: [await listen(listener)] });
    const ended: string[] = [];
    const sending = scene.send().then(() => ended.push('request'));
    await until(() => held.length === 1);
    const { addresses, upstream } = scene;
    const closing = addresses.close(upstream.close()).then(() => ended.push('upstream'));
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
    for (const _ of [1, 2]) scene.upstream.addresses[1]?.failed(new GatewayError(GONE, 'gone'), true);
    expect(await scene.send()).toBe(403);
    expect(await scene.send()).toBe(OPEN);
  });
});

describe('credentials', () => {
  test('are those that were given, and one that is offered is used at once', async () => {
    const scene = open({ origins: [await listen(serving()), await closedPort()] });
    const { addresses } = scene;
    expect([addresses.uses('c'), addresses.uses('other')]).toEqual([true, false]);
    await expect(scene.send({ credential: 'other' })).rejects.toThrow('deployment d has no credential other');
    addresses.offer(setOf('other', '7'));
    expect(await scene.send({ credential: 'other' })).toBe(200);
    expect(addresses.has({ credential: 'other', version: '7' })).toBe(true);
    expect(addresses.has({ credential: 'other', version: '8' })).toBe(false);
    expect(addresses.has({ credential: 'none', version: '7' })).toBe(false);
    addresses.keepOnly(new Set(['other']));
    expect([addresses.uses('c'), addresses.uses('other')]).toEqual([false, true]);
  });

  test('have versions, of which another one is promoted at every address', async () => {
    const scene = open({ origins: [await closedPort(), await closedPort()] });
    const { addresses } = scene;
    const second = setOf('c', '2');
    addresses.offer({ ...setOf(), next: second.current });
    const states = () =>
      addresses.all.map(({ credentials }) =>
        credentials.map(({ credential, version, state, inUse, serves, rejected }) =>
          [credential, version, state, inUse, serves, rejected].join(' '),
        ),
      );
    const before = ['c 1 in-use true true false', 'c 2 candidate false true false'];
    expect(states()).toEqual([before, before]);
    addresses.promote({ credential: 'c', version: '2' });
    addresses.promote({ credential: 'none', version: '2' });
    const after = ['c 2 in-use true true false', 'c 1 fallback false true false'];
    expect(states()).toEqual([after, after]);
    const [address] = addresses.all;
    expect(address?.pools.map(({ policy }) => policy)).toEqual(['shared']);
    addresses.offer({ ...second, current: setOf('c', '3').current });
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
    const { addresses, upstream } = open({ origins: [await closedPort()] }, { store });
    const [address] = addresses.all;
    const key = address?.credential('c')?.versions.inUse.key ?? '';
    await store.replace(key, undefined, aged('n'), 60_000);
    await addresses.restore();
    expect(address?.pools.map(({ known }) => known?.challenge.nonce)).toEqual(['n']);
    await addresses.close(upstream.close());
    expect(address?.pools).toEqual([]);
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
    await ended.addresses.close(ended.upstream.close());
    const [before, { checks }] = [ended.seen.checks, other.seen];
    await until(() => other.seen.checks > checks + 3);
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
    address?.failed(new GatewayError(GONE, 'gone'), sent);
    address?.state.checked('connection');
    expect(address?.state.status.health).toBe(health);
  });
});
