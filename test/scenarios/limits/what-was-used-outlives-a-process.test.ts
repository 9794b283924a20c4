import { afterEach, expect, test } from '@jest/globals';
import { type RedisServer, startRedis } from '../../support/redis.ts';
import { redisOptions, single } from '../../support/redis-store.ts';
import { type RunningGateway, setupFor, startGateway } from '../../support/running-gateway.ts';
import { authors, openPair, type Pair } from '../../support/simulated-pair.ts';

const closing: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
});

async function scene(): Promise<{ redis: RedisServer; simulator: Pair['simulator'] }> {
  const redis = await startRedis();
  closing.push(() => redis.close());
  const pair = await openPair();
  closing.push(() => pair.close());
  return { redis, simulator: pair.simulator };
}

function upstreamOf(simulator: Pair['simulator'], limits: object) {
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

test("with Redis, a day's quota counts what was used before a restart", async () => {
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

test('a reload with new limits does not begin anew', async () => {
  const { simulator } = await scene();
  const gateway = await startGateway(upstreamOf(simulator, { daily: 5 }));
  closing.push(() => gateway.close());
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
