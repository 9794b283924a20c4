import { describe, expect, test } from '@jest/globals';
import type { BehaviourChange } from '../../../src/simulator/settings.ts';
import { type RedisServer, startRedis } from '../../support/redis.ts';
import { redisOptions, single } from '../../support/redis-store.ts';
import { seesRedis, useReplicas } from '../../support/replica-scene.ts';
import type { RunningGateway } from '../../support/running-gateway.ts';
import { authors, type Pair } from '../../support/simulated-pair.ts';
import { until } from '../../support/until.ts';

const replicas = useReplicas();

interface Scene {
  readonly redis: RedisServer;
  readonly simulator: Pair['simulator'];
  /** A replica: a gateway on the same Redis, which need not be there. */
  replica(isThere?: boolean): Promise<RunningGateway>;
}

async function setScene(behaviour: BehaviourChange = {}, settings = {}): Promise<Scene> {
  const redis = await startRedis();
  replicas.closing.push(() => redis.close());
  const { simulator, replica } = await replicas.setScene(behaviour, false, settings);
  return { redis, simulator, replica: (isThere) => replica(redisOptions(single(redis.port)), isThere) };
}

async function get(gateway: RunningGateway): Promise<number> {
  const answer = await fetch(`${gateway.origin}${authors}`);
  await answer.text();
  return answer.status;
}

const hasNonce = (gateway: RunningGateway) => async () =>
  (await gateway.metric('digest_gateway_nonce_age_seconds')) > 0;

/** How long the upstream takes to issue a challenge, in milliseconds: longer than a scrape of metrics at its quickest. */
const ISSUE_MS = 300;

/** Resolves when this replica uses a nonce that was issued after `since` (`performance.now()`). */
async function hasNonceSince(replica: RunningGateway, since: number): Promise<void> {
  await until(async () => {
    const begun = performance.now();
    const ageMs = 1000 * (await replica.metric('digest_gateway_nonce_age_seconds'));
    // The age was taken after `begun`: a nonce from before `since` is older than that.
    return ageMs > 0 && ageMs < begun - since;
  });
}

describe('without qop', () => {
  test('one challenge serves four replicas, at the start and after each expiry', async () => {
    // On a slow machine a reset looks like the end of a short life, and renewals would be counted.
    const { simulator, replica } = await setScene(
      // Without stale a challenge that took long is not answered: another one is asked for.
      { staleFlag: 'always', faults: [{ kind: 'delay', ms: ISSUE_MS, when: 'unauthenticated' }] },
      { digest: { renewAhead: false } },
    );
    const replicas = [await replica(), await replica(), await replica(), await replica()];
    const [first] = replicas;
    if (first === undefined) throw new Error('no replica');
    for (let round = 1; round <= 3; round += 1) {
      simulator.reset('submissions');
      const since = performance.now();
      expect(await get(first)).toBe(200);
      for (const each of replicas) await hasNonceSince(each, since);
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

test('absent at the start: the gateway serves, and shares once Redis is there', async () => {
  const { redis, replica, simulator } = await setScene();
  const other = await replica();
  await redis.kill();
  const gateway = await replica(false);
  expect(await get(gateway)).toBe(200);
  expect(await seesRedis(gateway)).toBe(false);
  await redis.restart();
  await until(() => seesRedis(gateway));
  simulator.reset('submissions');
  expect(await get(gateway)).toBe(200);
  await until(hasNonce(other));
  expect(await get(other)).toBe(200);
});
