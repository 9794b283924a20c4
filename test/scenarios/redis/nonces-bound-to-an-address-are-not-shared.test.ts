import { afterEach, expect, test } from '@jest/globals';
import { startRedis } from '../../support/redis.ts';
import { redisOptions, single } from '../../support/redis-store.ts';
import { startRelay } from '../../support/relay.ts';
import { type RunningGateway, startGateway } from '../../support/running-gateway.ts';
import { authors, openPair } from '../../support/simulated-pair.ts';
import { until } from '../../support/until.ts';

const ATTEMPTS = 'digest_gateway_upstream_attempts_total';
const closing: (() => Promise<void>)[] = [];

afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
});

/** Two replicas in front of an upstream that binds nonces to addresses; each leaves from its own. */
async function twoAddresses() {
  const redis = await startRedis();
  closing.push(() => redis.close());
  const pair = await openPair({ behaviour: { bindNonceToAddress: true, staleFlag: 'never' } });
  closing.push(() => pair.close());
  const { simulator } = pair;
  let from = '127.0.0.1';
  const relay = await startRelay(simulator.deployments.submissions.port, () => ({ from }));
  closing.push(() => relay.close());
  const upstream = { submissions: { origin: `https://127.0.0.1:${relay.port}`, ca: simulator.ca } };
  const replica = async (address: string): Promise<RunningGateway> => {
    const gateway = await startGateway(upstream, {}, { redis: redisOptions(single(redis.port)) });
    closing.push(() => gateway.close());
    await until(async () => (await gateway.metric('digest_gateway_store_up')) === 1);
    from = address;
    // Its one connection stays with that address.
    expect(await get(gateway)).toBe(200);
    return gateway;
  };
  return { simulator, replicas: [await replica('127.0.0.1'), await replica('127.0.0.2')] };
}

async function get(gateway: RunningGateway): Promise<number> {
  const answer = await fetch(`${gateway.origin}${authors}`);
  await answer.text();
  return answer.status;
}

test('replicas that leave from several addresses learn to keep their nonces to themselves', async () => {
  const { simulator, replicas } = await twoAddresses();
  const metric = async (name: string, labels: Record<string, string>): Promise<number> => {
    const values = await Promise.all(replicas.map((replica) => replica.metric(name, labels)));
    return values.reduce((sum, value) => sum + value, 0);
  };
  const isLearned = (): boolean =>
    replicas.some(({ logged }) =>
      logged.some(({ msg }) => /nonces of other processes refused/.test(String(msg))),
    );
  await until(async () => {
    for (const replica of replicas) expect(await get(replica)).toBe(200);
    return isLearned();
  });
  // What was adopted before may have to be replaced once.
  for (const replica of replicas) expect(await get(replica)).toBe(200);

  const before = simulator.counts('submissions').requests;
  for (let round = 0; round < 20; round += 1) {
    for (const replica of replicas) expect(await get(replica)).toBe(200);
  }
  expect(simulator.counts('submissions').requests - before).toBe(40);
  expect(await metric(ATTEMPTS, { result: 'refused' })).toBe(0);
  expect(simulator.counts('submissions').refused['wrong-response']).toBe(0);
});
