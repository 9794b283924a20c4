import { setTimeout as delay } from 'node:timers/promises';
import { describe, expect, test } from '@jest/globals';
import { Pool } from 'undici';
import { closedAtEnd, closing } from '../support/closing.ts';
import {
  type ConfiguredGateway,
  type RunningGateway,
  setupFor,
  startConfiguredGateway,
  startGateway,
} from '../support/gateway.ts';
import { type RedisServer, startRedis } from '../support/redis.ts';
import { redisOptions, single } from '../support/redis-store.ts';
import { authors, problemOf, type RunningScene, startScene } from '../support/scene.ts';
import { startSimulator } from '../support/simulator.ts';
import { until } from '../support/until.ts';
import { connect } from '../support/wire.ts';

interface Asked {
  readonly status: number;
  /** How long the response took, in milliseconds. */
  readonly ms: number;
  /** Requests that all replicas together have left, as the RateLimit field says. */
  readonly left: number;
}

/** A gateway, and a client of it. */
interface LimitedReplica extends ConfiguredGateway {
  /** Sends one request. */
  ask(): Promise<Asked>;
}

interface LimitedReplicas {
  readonly redis: RedisServer;
  readonly replicas: readonly LimitedReplica[];
}

/** The longest that a call of Redis may take, in milliseconds: a request that waits for Redis takes that long. */
const CALL_MS = 500;
/** How long each client pauses, in milliseconds: together they ask for many times what is set. */
const PAUSE_MS = 40;

/** Starts gateways on one Redis, with the same limits; all end after the test, however it went. */
async function start(count: number, limits: object): Promise<LimitedReplicas> {
  const [redis, simulator] = await Promise.all([
    startRedis(),
    startSimulator({
      deployments: { upstream: { kind: 'submissions', family: 'manuscripts', testPaths: true } },
    }),
  ]);
  closing.push(
    () => redis.close(),
    () => simulator.close(),
  );
  const startOne = async (): Promise<LimitedReplica> => {
    const gateway = await startConfiguredGateway(
      {
        upstream: {
          origin: simulator.deployments.upstream.origin,
          ca: simulator.ca,
          settings: { limits },
        },
      },
      { redis: { url: redis.url, keyPrefix: 'test', timeout: `${CALL_MS}ms` } },
    );
    const client = new Pool(gateway.origin);
    closing.push(
      () => gateway.close(),
      () => client.close(),
    );
    return {
      ...gateway,
      ask: async () => {
        const begun = performance.now();
        const answer = await client.request({ path: '/status/204', method: 'GET' });
        await answer.body.dump();
        const [, left] = /;r=(\d+)/.exec(String(answer.headers['ratelimit'])) ?? [];
        return { status: answer.statusCode, ms: performance.now() - begun, left: Number(left) };
      },
    };
  };
  const replicas = await Promise.all(Array.from({ length: count }, startOne));
  return { redis, replicas };
}

interface Load {
  readonly passed: number;
  readonly seconds: number;
  /** When the last request was refused, on the clock of this process in milliseconds. */
  readonly endedAt: number;
  /** Requests that all replicas together had left when the last one was refused. */
  readonly left: number;
  /** Milliseconds within which 95 % of the answers came. */
  readonly usualMs: number;
}

/**
 * Sends more than the replicas let pass, for at least so long, until one more is refused. Another answer than
 * 204 or 429 is an error.
 */
async function saturate(
  replicas: readonly LimitedReplica[],
  ms: number,
  /** Clients of each replica. */
  clients = 3,
): Promise<Load> {
  // A bucket that nobody has used yet is full: time counts from the first answer.
  let begun: number | undefined;
  const answers: Asked[] = [];
  /** When the last request was refused after the time was over; undefined: not yet. */
  let ended: number | undefined;
  const client = async (replica: LimitedReplica): Promise<void> => {
    while (ended === undefined) {
      const answer = await replica.ask();
      answers.push(answer);
      const now = performance.now();
      begun ??= now;
      if (answer.status === 429 && now - begun >= ms) ended ??= now;
      await delay(PAUSE_MS);
    }
  };
  await Promise.all(replicas.flatMap((replica) => Array.from({ length: clients }, () => client(replica))));
  const seconds = ((ended ?? 0) - (begun ?? 0)) / 1000;
  const other = answers.find(({ status }) => status !== 204 && status !== 429);
  if (other !== undefined) throw new Error(`The gateway answered ${other.status}`);
  const passed = answers.filter(({ status }) => status === 204).length;
  const sorted = answers.map((answer) => answer.ms).sort((x, y) => x - y);
  const left = answers.findLast(({ status }) => status === 429)?.left ?? Number.NaN;
  return {
    passed,
    seconds,
    endedAt: ended ?? 0,
    left,
    usualMs: sorted[Math.floor(sorted.length * 0.95)] ?? 0,
  };
}

describe('a request beyond the limit', () => {
  const POLICY = '"deployment-rate";q=2;w=2, "deployment-daily";q=100;w=86400';

  test('gets 429 with Retry-After, and passes after that time', async () => {
    const clock = { at: 0, now: () => clock.at };
    const { get, gateway, simulator } = await startScene({
      settings: { limits: { rate: '1/s', burst: 2, daily: 100 } },
      clock,
    });
    const passed = [await get(authors), await get(authors)];
    expect(passed.map(({ status }) => status)).toEqual([200, 200]);
    expect(passed.map(({ headers }) => headers.get('ratelimit-policy'))).toEqual([POLICY, POLICY]);
    expect(passed[1]?.headers.get('ratelimit')).toMatch(
      /^"deployment-rate";r=0;t=1, "deployment-daily";r=98;t=\d{1,5}$/,
    );

    const refused = await get(authors);
    expect(refused.status).toBe(429);
    expect(refused.headers.get('retry-after')).toBe('1');
    expect(refused.headers.get('ratelimit-policy')).toBe(POLICY);
    expect(refused.headers.get('ratelimit')).toMatch(/^"deployment-rate";r=0;t=1, /);
    expect(await problemOf(refused)).toMatchObject({
      status: 429,
      code: 'rate-limited',
      title: 'Rate limited',
      detail: expect.stringContaining('limits.rate'),
    });
    expect(simulator.counts('submissions').accepted).toBe(2);
    expect(await gateway.metric('digest_gateway_rate_limited_total', { client: 'anonymous' })).toBe(1);

    clock.at = 999;
    expect((await get(authors)).status).toBe(429);
    clock.at = 1_000;
    expect((await get(authors)).status).toBe(200);
    expect(gateway.logged).toEqual([]);
  });

  test('is announced by the RateLimit fields of an error response as well', async () => {
    const { get } = await startScene({
      behaviour: { faults: [{ kind: 'reset-before-head' }] },
      settings: { limits: { concurrent: 3 } },
    });
    const failed = await get(authors);
    expect([failed.status, failed.headers.get('ratelimit')]).toEqual([502, '"deployment-concurrent";r=2']);
  });

  test('has no fields where no limit is set', async () => {
    const { get } = await startScene();
    const { headers } = await get(authors);
    expect([headers.get('ratelimit'), headers.get('ratelimit-policy')]).toEqual([null, null]);
  });
});

describe('limits.concurrent counts a request no longer', () => {
  const PLACES = 4;
  const ROUNDS = 3;
  const settings = { limits: { concurrent: PLACES }, circuit: { minimum: 1_000_000 } };

  const inFlight = ({ gateway }: RunningScene): Promise<number> =>
    gateway.metric('digest_gateway_requests_in_flight');

  async function statuses({ get }: RunningScene): Promise<Set<number>> {
    const answers = await Promise.all(Array.from({ length: PLACES }, () => get(authors)));
    await Promise.all(answers.map((answer) => answer.text()));
    return new Set(answers.map(({ status }) => status));
  }

  async function expectAllFree(pair: RunningScene): Promise<void> {
    await until(async () => (await inFlight(pair)) === 0);
    const answer = await pair.get(authors);
    await answer.text();
    expect([answer.status, answer.headers.get('ratelimit')]).toEqual([
      200,
      `"deployment-concurrent";r=${PLACES - 1}`,
    ]);
  }

  test('when the client leaves', async () => {
    const pair = await startScene({ settings });
    expect(await statuses(pair)).toEqual(new Set([200]));
    pair.simulator.set('submissions', { faults: [{ kind: 'hang' }] });
    for (let round = 1; round <= ROUNDS; round += 1) {
      const leaving = new AbortController();
      const asked = Array.from({ length: PLACES }, () =>
        pair.get(authors, { signal: leaving.signal }).catch((error: Error) => error.name),
      );
      await until(async () => (await inFlight(pair)) === PLACES);
      const beyond = await pair.get(authors);
      expect([beyond.status, beyond.headers.get('retry-after')]).toEqual([429, '1']);
      leaving.abort();
      expect(new Set(await Promise.all(asked))).toEqual(new Set(['AbortError']));
      await until(async () => (await inFlight(pair)) === 0);
    }
    pair.simulator.set('submissions', { faults: [] });
    await expectAllFree(pair);
  });

  test('when the upstream fails', async () => {
    const pair = await startScene({ behaviour: { faults: [{ kind: 'reset-before-head' }] }, settings });
    for (let round = 1; round <= ROUNDS; round += 1) expect(await statuses(pair)).toEqual(new Set([502]));
    pair.simulator.set('submissions', { faults: [] });
    await expectAllFree(pair);
  });

  test('when the response has left', async () => {
    const pair = await startScene({ settings });
    for (let round = 1; round <= ROUNDS; round += 1) expect(await statuses(pair)).toEqual(new Set([200]));
    await expectAllFree(pair);
  });

  test('when the next one on its connection came before the response had left', async () => {
    const { gateway } = await startScene({ settings: { ...settings, limits: { concurrent: 1 } } });
    const client = await connect(gateway.port);
    const count = 20;
    await client.send(`GET ${authors} HTTP/1.1\r\nHost: x\r\n\r\n`.repeat(count));
    const statuses: number[] = [];
    while (statuses.length < count) statuses.push((await client.answer()).status);
    expect(statuses).toEqual(statuses.map(() => 200));
  });
});

describe('what was used of a limit', () => {
  async function scene(): Promise<{ redis: RedisServer; simulator: RunningScene['simulator'] }> {
    const redis = await closedAtEnd(startRedis());
    const pair = await startScene();
    return { redis, simulator: pair.simulator };
  }

  function upstreamOf(simulator: RunningScene['simulator'], limits: object) {
    const { origin } = simulator.deployments.submissions;
    return { submissions: { origin, ca: simulator.ca, settings: { limits } } };
  }

  async function passing({ origin }: RunningGateway, count: number): Promise<number> {
    let passed = 0;
    for (let asked = 0; asked < count; asked += 1) {
      const answer = await fetch(`${origin}${authors}`);
      await answer.text();
      if (answer.status === 200) passed += 1;
    }
    return passed;
  }

  test("counts after a restart in a day's quota with Redis", async () => {
    const { redis, simulator } = await scene();
    const run = async (count: number): Promise<number> => {
      const upstream = upstreamOf(simulator, { daily: 5 });
      const gateway = await startGateway(upstream, {}, { redis: redisOptions(single(redis.port)) });
      try {
        return await passing(gateway, count);
      } finally {
        await gateway.close();
      }
    };
    expect(await run(3)).toBe(3);
    expect(await run(9)).toBe(2);
    expect(await run(1)).toBe(0);
  });

  test('counts after a reload with new limits', async () => {
    const { simulator } = await scene();
    const gateway = await closedAtEnd(startGateway(upstreamOf(simulator, { daily: 5 })));
    expect(await passing(gateway, 4)).toBe(4);
    const reload = async (limits: object) => {
      const setup = await setupFor(upstreamOf(simulator, limits));
      await gateway.app.reload(async () => setup);
    };
    await reload({ daily: 6 });
    expect(await passing(gateway, 9)).toBe(2);
    await reload({ daily: 3 });
    expect(await passing(gateway, 1)).toBe(0);
    await reload({ rate: '1000/s' });
    expect(await passing(gateway, 3)).toBe(3);
  });
});

describe('four replicas together admit what is set', () => {
  /** Three seconds' worth, so that a machine that stands still for a moment loses nothing of the rate. */
  const BURST = 90;
  /** So low that the clients want more than that on a slow machine, too. */
  const RATE = 30;
  const CLIENTS = 4;
  const limits = { rate: `${RATE}/s`, burst: BURST };

  /**
   * The requests admitted and the tokens left make up the limit, within 15 %, a fraction of one burst: no token is given
   * twice or lost. Few tokens are left: no replica keeps those that another one needs.
   */
  function expectWhatIsSet(...loads: readonly Load[]): void {
    const sum = (of: (load: Load) => number): number => loads.reduce((total, load) => total + of(load), 0);
    const set = BURST + RATE * sum(({ seconds }) => seconds);
    const left = loads.at(-1)?.left ?? Number.NaN;
    const share = (sum(({ passed }) => passed) + left) / set;
    expect(share).toBeGreaterThan(0.85);
    expect(share).toBeLessThan(1.15);
    expect(left / BURST).toBeLessThan(0.25);
  }

  test('from a cold start, under the same load each', async () => {
    const { replicas } = await start(4, limits);
    expectWhatIsSet(await saturate(replicas, 5_000, CLIENTS));
  });

  test('when one replica has all the load, and then another', async () => {
    const { replicas } = await start(4, limits);
    const first = await saturate(replicas.slice(0, 1), 3_000, CLIENTS);
    const second = await saturate(replicas.slice(1, 2), 3_000, CLIENTS);
    expectWhatIsSet(first, second);
  });
});

describe('an outage of Redis', () => {
  /** So low that the clients want more than that on a slow machine, too. */
  const RATE = 20;
  const limits = { rate: `${RATE}/s`, burst: 2 * RATE };

  /** Since the end of the load before, which left nothing of the burst. */
  function expectTheRateAlone({ passed, endedAt }: Load, before: Load): void {
    const set = (RATE * (endedAt - before.endedAt)) / 1000;
    expect(passed / set).toBeGreaterThan(0.75);
    // A second burst would let half as much more pass; a replica that stood still has a part of that left over.
    expect(passed / set).toBeLessThan(1.4);
  }

  /** Calls about limits that failed, of each replica. */
  const failedCalls = (replicas: readonly LimitedReplica[]): Promise<number[]> =>
    Promise.all(
      replicas.map(({ metric }) => metric('digest_gateway_store_errors_total', { operation: 'limits' })),
    );

  test('after a hang or a kill each replica goes on with its part, nobody waits, and there is no second burst when it is back', async () => {
    const { redis, replicas } = await start(2, limits);
    const isBack = async (): Promise<boolean> => {
      const up = replicas.map(({ metric }) => metric('digest_gateway_store_up'));
      return (await Promise.all(up)).every((each) => each === 1);
    };
    let before = await saturate(replicas, 1_500);
    for (const fault of ['hang', 'kill'] as const) {
      const failed = await failedCalls(replicas);
      await redis[fault]();
      const without = await saturate(replicas, 3_000);
      expectTheRateAlone(without, before);
      // A busy machine delays the answers of both loads.
      expect(without.usualMs - before.usualMs).toBeLessThan(CALL_MS);

      await (fault === 'kill' ? redis.restart() : redis.goOn());
      const returning = saturate(replicas, 3_000);
      await until(isBack);
      before = await returning;
      expectTheRateAlone(before, without);
      for (const [at, count] of (await failedCalls(replicas)).entries()) {
        expect(count).toBeGreaterThan(failed[at] ?? 0);
      }
    }
  });
});
