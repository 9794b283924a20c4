import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { type RedisServer, startRedis } from '../../support/redis.ts';
import { nonceOf } from '../../support/replica-scene.ts';
import { type ServedGateway, serveGateway } from '../../support/served-gateway.ts';
import { openPair, type Pair } from '../../support/simulated-pair.ts';
import { startLoad } from '../../support/steady-load.ts';
import { until } from '../../support/until.ts';

let redis: RedisServer;
let pair: Pair;
const served: ServedGateway[] = [];
beforeEach(async () => {
  [redis, pair] = await Promise.all([
    startRedis(),
    openPair({ behaviour: { qop: 'auth', nc: 'rising', testPaths: true } }),
  ]);
});
afterEach(async () => {
  await Promise.all(served.splice(0).map((gateway) => gateway.close()));
  await pair.close();
  await redis.close();
});

/** A gateway in a process of its own, on the same Redis. */
async function serve(): Promise<ServedGateway> {
  const { simulator } = pair;
  const { origin } = simulator.deployments.submissions;
  const gateway = await serveGateway({ origin, ca: simulator.ca }, { redis: { url: redis.url } });
  served.push(gateway);
  await until(async () => (await gateway.metric('digest_gateway_store_up')) === 1);
  return gateway;
}

const counts = () => pair.simulator.counts('submissions');

test('drained by SIGTERM after some use, it leaves the nonce: the next process goes on where its count stood', async () => {
  const owner = await serve();
  const nonce = await nonceOf(owner);
  const load = startLoad([owner.origin]);
  await until(() => counts().accepted > 50);
  const { failures } = await load.end();
  await owner.drain();
  const { challenges, accepted } = counts();

  const heir = await serve();
  expect(await nonceOf(heir)).toBe(nonce);
  expect(failures).toEqual([]);
  expect(counts()).toMatchObject({ challenges, accepted: accepted + 1, ncViolations: 0 });
  expect(counts().nonces.map(({ highestNc }) => highestNc)).toEqual([accepted + 1]);
  expect(await heir.metric('digest_gateway_challenges_total')).toBe(0);
});

test('killed by SIGKILL, it takes the nonce along: the next process starts cold, without harm', async () => {
  const owner = await serve();
  const nonce = await nonceOf(owner);
  await nonceOf(owner);
  await owner.kill();
  const { challenges, accepted } = counts();

  const next = await serve();
  const fresh = await nonceOf(next);
  expect(fresh).not.toBe(nonce);
  expect(await nonceOf(next)).toBe(fresh);
  expect(counts()).toMatchObject({ challenges: challenges + 1, accepted: accepted + 2, ncViolations: 0 });
  expect(await next.metric('digest_gateway_challenges_total', { reason: 'cold' })).toBe(1);
  expect(await next.metric('digest_gateway_upstream_attempts_total', { result: 'refused' })).toBe(0);
  expect(await next.metric('digest_gateway_store_errors_total')).toBe(0);
});
