import { afterEach, describe, expect, test } from '@jest/globals';
import type { BehaviourChange } from '../../../src/simulator/settings.ts';
import { type RedisServer, startRedis } from '../../support/redis.ts';
import { type RunningGateway, startGateway } from '../../support/running-gateway.ts';
import { authors, openPair, type Pair } from '../../support/simulated-pair.ts';
import { until } from '../../support/until.ts';

const closing: (() => Promise<void>)[] = [];

afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
});

interface Scene {
  readonly redis: RedisServer;
  readonly simulator: Pair['simulator'];
  /** A replica: a gateway on the same Redis. */
  replica(): Promise<RunningGateway>;
}

async function setScene(behaviour: BehaviourChange = {}): Promise<Scene> {
  const redis = await startRedis();
  closing.push(() => redis.close());
  const pair = await openPair({ behaviour });
  closing.push(() => pair.close());
  const { simulator } = pair;
  const { origin } = simulator.deployments.submissions;
  const replica = async (): Promise<RunningGateway> => {
    const upstream = { submissions: { origin, ca: simulator.ca } };
    const gateway = await startGateway(upstream, {}, { redisPort: redis.port });
    closing.push(() => gateway.close());
    await until(async () => (await gateway.metric('digest_gateway_store_up')) === 1);
    return gateway;
  };
  return { redis, simulator, replica };
}

async function get(gateway: RunningGateway): Promise<number> {
  const answer = await fetch(`${gateway.origin}${authors}`);
  await answer.text();
  return answer.status;
}

const hasNonce = (gateway: RunningGateway) => async () =>
  (await gateway.metric('digest_gateway_nonce_age_seconds')) > 0;

/** Whether all use the same nonce, as far as its age tells. */
async function areOfOneAge(replicas: readonly RunningGateway[]): Promise<boolean> {
  const born = await Promise.all(
    replicas.map(async (each) => {
      const age = await each.metric('digest_gateway_nonce_age_seconds');
      return age === 0 ? Number.POSITIVE_INFINITY : performance.now() / 1000 - age;
    }),
  );
  return Math.max(...born) - Math.min(...born) < 0.03;
}

describe('without qop', () => {
  test('one challenge serves four replicas, at the start and after each expiry', async () => {
    const { simulator, replica } = await setScene();
    const replicas = [await replica(), await replica(), await replica(), await replica()];
    const [first] = replicas;
    if (first === undefined) throw new Error('no replica');
    for (let round = 1; round <= 3; round += 1) {
      simulator.reset('submissions');
      expect(await get(first)).toBe(200);
      await until(() => areOfOneAge(replicas));
      for (const each of replicas) expect(await get(each)).toBe(200);
      expect(simulator.counts('submissions').challenges).toBe(1);
    }
  });

  test('one challenge serves four replicas that meet their first crowd at the same moment', async () => {
    const { simulator, replica } = await setScene();
    const replicas = [await replica(), await replica(), await replica(), await replica()];
    const asked = replicas.flatMap((each) => Array.from({ length: 10 }, () => get(each)));
    expect(new Set(await Promise.all(asked))).toEqual(new Set([200]));
    expect(simulator.counts('submissions').challenges).toBe(1);
  });

  test('a replica that starts later needs no challenge of its own', async () => {
    const { simulator, replica } = await setScene();
    expect(await get(await replica())).toBe(200);
    const later = await replica();
    await until(hasNonce(later));
    expect(await get(later)).toBe(200);
    expect(simulator.counts('submissions').challenges).toBe(1);
  });
});

describe('with qop', () => {
  test('a nonce has one owner; the next process takes it over where the first left it', async () => {
    const { simulator, replica } = await setScene({ qop: 'auth', nc: 'rising' });
    const owner = await replica();
    for (let count = 0; count < 3; count += 1) expect(await get(owner)).toBe(200);
    const neighbour = await replica();
    expect(await get(neighbour)).toBe(200);
    expect(simulator.counts('submissions').challenges).toBe(2);
    await owner.close();
    const heir = await replica();
    await until(hasNonce(heir));
    expect(await get(heir)).toBe(200);
    const { challenges, nonces, ncViolations } = simulator.counts('submissions');
    expect([challenges, ncViolations]).toEqual([2, 0]);
    expect(nonces.map(({ highestNc }) => highestNc)).toEqual([4, 1]);
  });
});

describe('when Redis goes away', () => {
  test.each([
    ['killed', (redis: RedisServer) => redis.kill(), (redis: RedisServer) => redis.restart()],
    ['hung', (redis: RedisServer) => redis.hang(), (redis: RedisServer) => redis.goOn()],
  ] as const)(
    '%s: no request fails or waits, and it is told; then all is shared again within 2 s',
    async (_how, stop, start) => {
      const { redis, simulator, replica } = await setScene({ nonceLifetimeMs: 300 });
      const replicas = [await replica(), await replica()];
      const statuses = new Set<number>();
      let slowest = 0;
      const ask = async (): Promise<void> => {
        for (const each of replicas) {
          const begun = performance.now();
          statuses.add(await get(each));
          slowest = Math.max(slowest, performance.now() - begun);
        }
      };
      await ask();
      await stop(redis);
      const [first] = replicas;
      if (first === undefined) throw new Error('no replica');
      const isUp = (value: number) => async () => (await first.metric('digest_gateway_store_up')) === value;
      while (!(await isUp(0)())) await ask();
      for (let count = 0; count < 50; count += 1) await ask();
      const readiness = await fetch(`${first.control}/readyz`);
      expect([readiness.status, ((await readiness.json()) as { status: string }).status]).toEqual([
        200,
        'degraded',
      ]);
      await start(redis);
      const back = await until(isUp(1));
      expect(back).toBeLessThan(2_000);
      await ask();
      expect(statuses).toEqual(new Set([200]));
      expect(slowest).toBeLessThan(1_000);
      expect(simulator.counts('submissions').refused['wrong-response']).toBe(0);
      const late = await replica();
      await get(first);
      await until(hasNonce(late));
    },
    20_000,
  );

  test('absent at the start: the gateway serves, and shares once Redis is there', async () => {
    const { redis, replica, simulator } = await setScene();
    const other = await replica();
    await redis.kill();
    const { origin } = simulator.deployments.submissions;
    const upstream = { submissions: { origin, ca: simulator.ca } };
    const gateway = await startGateway(upstream, {}, { redisPort: redis.port });
    closing.push(() => gateway.close());
    expect(await get(gateway)).toBe(200);
    expect(await gateway.metric('digest_gateway_store_up')).toBe(0);
    await redis.restart();
    await until(async () => (await gateway.metric('digest_gateway_store_up')) === 1);
    simulator.reset('submissions');
    expect(await get(gateway)).toBe(200);
    await until(hasNonce(other));
    expect(await get(other)).toBe(200);
  }, 20_000);
});
