import type { IncomingMessage, ServerResponse } from 'node:http';
import { describe, expect, test } from '@jest/globals';
import { monotonicClock } from '../../src/base/clock.ts';
import { type Called, call } from '../support/client-call.ts';
import { closing } from '../support/closing.ts';
import { startGateway } from '../support/gateway.ts';
import { startUpstream } from '../support/scripted-upstream.ts';
import { until } from '../support/until.ts';

const CHALLENGE = 'Digest realm="r", nonce="n", qop="auth"';
const start = useSlowUpstream();

/** A client is known by its address. */
const CLIENTS = { hog: '127.0.0.2', other: '127.0.0.3' };
type Client = keyof typeof CLIENTS;

/**
 * A gateway with two clients, and an upstream that holds every authenticated request until the test lets it respond.
 * The first request, which obtains a nonce, is over.
 */
function useSlowUpstream() {
  return async (connections: number, clock = monotonicClock) => {
    const held: { target: string; res: ServerResponse }[] = [];
    const seen: string[] = [];
    let isFast = true;
    const upstream = await startUpstream((req: IncomingMessage, res) => {
      const target = req.url ?? '';
      if (req.headers.authorization === undefined) {
        res.writeHead(401, { 'www-authenticate': CHALLENGE }).end();
        return;
      }
      seen.push(target);
      if (isFast) res.end('ok');
      else held.push({ target, res });
    });
    closing.push(() => upstream.close());
    const gateway = await startGateway(
      {
        slow: {
          origin: upstream.origin,
          settings: {
            connections,
            tls: { allowPlaintext: true },
            digest: { noncePolicy: 'shared' },
            operations: { stream: { method: 'GET', path: '/stream', timeouts: { total: 'off' } } },
          },
        },
      },
      {
        listen: { port: 0, limits: { connectionsPerAddress: 2000 } },
        anonymous: false,
        clients: Object.entries(CLIENTS).map(([id, address]) => ({
          id,
          identify: { addresses: [`${address}/32`] },
          allow: [{ deployment: 'slow', operations: ['*'] }],
        })),
      },
      { clock },
    );
    const becomeFast = (): void => {
      isFast = true;
      for (const { res } of held.splice(0)) res.end('ok');
    };
    // The gateway waits for the requests under way.
    closing.push(() => gateway.close(), becomeFast);
    const send = (client: Client, target = `/${client}`) => call(gateway, { from: CLIENTS[client], target });
    expect((await send('other', '/first')).status).toBe(200);
    isFast = false;
    return {
      gateway,
      held,
      /** Targets of the authenticated requests that came, in their order. */
      seen,
      send,
      /** The next held request gets its response. */
      respond: () => held.shift()?.res.end('ok'),
      /** Every request gets its response at once from now on. */
      becomeFast,
      waiting: () => gateway.metric('digest_gateway_upstream_connections', { state: 'pending' }),
    };
  };
}

describe('one client fills the queue:', () => {
  test('with 1,000 of its requests waiting, the first request of another is the next or next but one', async () => {
    const { send, held, seen, respond, becomeFast, waiting, gateway } = await start(64);
    expect(await gateway.metric('digest_gateway_upstream_connections', { state: 'limit' })).toBe(64);
    const hog = Array.from({ length: 1064 }, () => send('hog'));
    // It leaves one in eight, which another takes.
    await until(async () => held.length === 56 && (await waiting()) === 1008);
    const others = Array.from({ length: 8 }, () => send('other', '/one-of-eight'));
    await until(() => held.length === 64);
    const other = send('other');
    await until(async () => (await waiting()) === 1009);
    const before = seen.length;
    respond();
    await until(() => seen.length === before + 1);
    respond();
    await until(() => seen.length === before + 2);
    expect(seen.slice(before)).toContain('/other');
    becomeFast();
    expect((await other).status).toBe(200);
    expect(new Set((await Promise.all([...hog, ...others])).map(({ status }) => status))).toEqual(
      new Set([200]),
    );
  });

  test('its further requests get 503 overloaded, as many of another do not', async () => {
    const { send, held, becomeFast, waiting, gateway } = await start(1);
    const refused: Called[] = [];
    const hog = Array.from({ length: 30 }, async () => {
      const called = await send('hog');
      if (called.status !== 200) refused.push(called);
      return called.status;
    });
    await until(async () => refused.length === 30 - 17 && (await waiting()) === 16);
    for (const each of refused) {
      expect(each).toMatchObject({
        status: 503,
        code: 'overloaded',
        detail: expect.stringContaining('connections'),
        retryAfter: '1',
      });
    }
    const other = Array.from({ length: 17 }, () => send('other'));
    await until(async () => (await waiting()) === 33);
    expect(held).toHaveLength(1);
    becomeFast();
    expect((await Promise.all(other)).map(({ status }) => status)).toEqual(other.map(() => 200));
    expect((await Promise.all(hog)).filter((status) => status === 200)).toHaveLength(17);
    const labels = { client: 'hog', code: 'overloaded' };
    expect(await gateway.metric('digest_gateway_requests_total', labels)).toBe(13);
    expect(await gateway.metric('digest_gateway_queue_wait_seconds_count')).toBe(33);
  });
});

describe('the time in the queue:', () => {
  /** A clock that the test moves: how long an exchange takes is then known exactly. */
  const movable = () => {
    const clock = { ms: 1, now: () => clock.ms };
    return clock;
  };

  test('a request whose wait would exceed timeouts.response gets 503 overloaded at once, until the upstream is fast again', async () => {
    const clock = movable();
    const scene = await start(1, clock);
    const { send, held, respond, becomeFast, waiting } = scene;
    for (let count = 0; count < 4; count += 1) {
      const sent = send('hog');
      await until(() => held.length === 1);
      clock.ms += 40_000;
      respond();
      await sent;
    }
    // An exchange now takes 27 s on average.
    const sent = [send('hog')];
    await until(() => held.length === 1);
    for (const ahead of [1, 2, 3]) {
      sent.push(send('hog'));
      await until(async () => (await waiting()) === ahead);
    }
    expect(await send('hog')).toMatchObject({
      status: 503,
      code: 'overloaded',
      detail: expect.stringContaining('timeouts.response'),
      retryAfter: '83',
    });
    // Only one request of its client is ahead of this one.
    sent.push(send('other'));
    await until(async () => (await waiting()) === 4);
    becomeFast();
    expect((await Promise.all(sent)).map(({ status }) => status)).toEqual(sent.map(() => 200));
    const burst = await Promise.all(Array.from({ length: 10 }, () => send('hog')));
    expect(burst.map(({ status }) => status)).toEqual(burst.map(() => 200));
  });

  test('a request that nothing waits ahead of is sent, however long exchanges took before', async () => {
    const clock = movable();
    const { send, held, respond, becomeFast, waiting } = await start(1, clock);
    const slow = send('hog');
    await until(() => held.length === 1);
    clock.ms += 600_000;
    respond();
    await slow;
    const sent = [send('hog')];
    await until(() => held.length === 1);
    sent.push(send('hog'));
    await until(async () => (await waiting()) === 1);
    expect((await send('hog')).code).toBe('overloaded');
    becomeFast();
    expect((await Promise.all(sent)).map(({ status }) => status)).toEqual([200, 200]);
    expect((await send('hog')).status).toBe(200);
  });

  test('is not expected to be long because a stream was, whose operation has no timeouts.total', async () => {
    const clock = movable();
    const { send, held, respond, becomeFast, waiting } = await start(1, clock);
    const stream = send('hog', '/stream');
    await until(() => held.length === 1);
    clock.ms += 3_600_000;
    respond();
    await stream;
    const sent = [send('hog')];
    await until(() => held.length === 1);
    for (const ahead of [1, 2, 3]) {
      sent.push(send('hog'));
      await until(async () => (await waiting()) === ahead);
    }
    becomeFast();
    expect((await Promise.all(sent)).map(({ status }) => status)).toEqual([200, 200, 200, 200]);
  });

  test('is no part of upstream_duration_seconds, in which a request that never left does not count', async () => {
    const clock = movable();
    const { send, held, respond, becomeFast, waiting, gateway } = await start(1, clock);
    const slow = send('hog');
    await until(() => held.length === 1);
    const queued = send('other');
    await until(async () => (await waiting()) === 1);
    clock.ms += 40_000;
    respond();
    expect((await slow).status).toBe(200);
    await until(() => held.length === 1);
    const late = send('hog');
    await until(async () => (await waiting()) === 1);
    clock.ms += 60_001;
    expect((await late).code).toBe('overloaded');
    becomeFast();
    expect((await queued).status).toBe(200);
    // The one of the scene, the slow one and the queued one.
    expect(await gateway.metric('digest_gateway_upstream_duration_seconds_count')).toBe(3);
    expect(await gateway.metric('digest_gateway_upstream_duration_seconds_sum')).toBeCloseTo(100.001, 6);
  });

  test('a request that has waited for timeouts.response gets 503 overloaded, the one on the connection goes on', async () => {
    const clock = movable();
    const { send, held, respond, waiting, gateway } = await start(1, clock);
    const slow = send('hog');
    await until(() => held.length === 1);
    const late = [send('hog'), send('other')];
    await until(async () => (await waiting()) === 2);
    clock.ms += 30_000;
    const later = send('hog', '/later');
    await until(async () => (await waiting()) === 3);
    clock.ms += 30_001;
    for (const each of await Promise.all(late)) {
      expect(each).toMatchObject({
        status: 503,
        code: 'overloaded',
        detail: expect.stringContaining('60000'),
      });
    }
    expect(await waiting()).toBe(1);
    respond();
    expect((await slow).status).toBe(200);
    await until(() => held[0]?.target === '/later');
    respond();
    expect((await later).status).toBe(200);
    expect(await gateway.metric('digest_gateway_queue_wait_seconds_count')).toBe(3);
  });
});
