import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import type { BehaviourChange } from '../../../../src/simulator/settings.ts';
import { closedAtEnd, closing } from '../../../support/closing.ts';
import { type RunningGateway, startGateway } from '../../../support/gateway.ts';
import { type GatewayProcess, startGatewayProcess } from '../../../support/gateway-process.ts';
import { startLoad } from '../../../support/load.ts';
import { type RedisServer, startRedis } from '../../../support/redis.ts';
import { redisOptions, single } from '../../../support/redis-store.ts';
import { startRelay } from '../../../support/relay.ts';
import { nonceOf, seesRedis, startReplicas } from '../../../support/replicas.ts';
import { authors, openScene, type RunningScene, startScene } from '../../../support/scene.ts';
import { until } from '../../../support/until.ts';

describe('replicas', () => {
  interface Scene {
    readonly redis: RedisServer;
    readonly simulator: RunningScene['simulator'];
    /** A replica: a gateway on the same Redis, which need not be there. */
    replica(isThere?: boolean): Promise<RunningGateway>;
  }

  async function setScene(behaviour: BehaviourChange = {}, settings = {}): Promise<Scene> {
    const redis = await closedAtEnd(startRedis());
    const { simulator, replica } = await startReplicas({ behaviour, settings });
    return { redis, simulator, replica: (isThere) => replica(redisOptions(single(redis.port)), isThere) };
  }

  async function get(gateway: RunningGateway): Promise<number> {
    const answer = await fetch(`${gateway.origin}${authors}`);
    await answer.text();
    return answer.status;
  }

  const hasNonce = (gateway: RunningGateway) => async () =>
    (await gateway.metric('digest_gateway_nonce_age_seconds')) > 0;

  /**
   * How long the upstream takes to issue a challenge, in milliseconds: longer than a scrape of metrics at its quickest.
   */
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

  describe('share without qop:', () => {
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

  describe('share with qop:', () => {
    test('a nonce has one owner, and the next process continues its count', async () => {
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

  test('serve without Redis at the start, and share once it is there', async () => {
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
});

describe('nonces that are bound to an address', () => {
  const ATTEMPTS = 'digest_gateway_upstream_attempts_total';

  /** Two replicas in front of an upstream that binds nonces to addresses; each leaves from its own. */
  async function twoAddresses() {
    const redis = await closedAtEnd(startRedis());
    const pair = await startScene({ behaviour: { bindNonceToAddress: true, staleFlag: 'never' } });
    const { simulator } = pair;
    let from = '127.0.0.1';
    const relay = await closedAtEnd(startRelay(simulator.deployments.submissions.port, () => ({ from })));
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

  test('are not shared between replicas with different addresses', async () => {
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
    // A challenge that was adopted before may have to be replaced once.
    for (const replica of replicas) expect(await get(replica)).toBe(200);

    const before = simulator.counts('submissions').requests;
    for (let round = 0; round < 20; round += 1) {
      for (const replica of replicas) expect(await get(replica)).toBe(200);
    }
    expect(simulator.counts('submissions').requests - before).toBe(40);
    expect(await metric(ATTEMPTS, { result: 'refused' })).toBe(0);
    expect(simulator.counts('submissions').refused['wrong-response']).toBe(0);
  });
});

describe('a nonce with a count', () => {
  let redis: RedisServer;
  let pair: RunningScene;
  const served: GatewayProcess[] = [];
  beforeEach(async () => {
    [redis, pair] = await Promise.all([
      startRedis(),
      openScene({ behaviour: { qop: 'auth', nc: 'rising', testPaths: true } }),
    ]);
  });
  afterEach(async () => {
    await Promise.all(served.splice(0).map((gateway) => gateway.close()));
    await pair.close();
    await redis.close();
  });

  /** A gateway in a process of its own, on the same Redis. */
  async function serve(): Promise<GatewayProcess> {
    const { simulator } = pair;
    const { origin } = simulator.deployments.submissions;
    const gateway = await startGatewayProcess(
      { upstream: { origin, ca: simulator.ca } },
      // Nothing is left or found if a call takes longer.
      { redis: { url: redis.url, timeout: '1s' } },
    );
    served.push(gateway);
    await until(async () => (await gateway.metric('digest_gateway_store_up')) === 1);
    return gateway;
  }

  const counts = () => pair.simulator.counts('submissions');

  test('is left to the next process, with its count, by a drain', async () => {
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

  test('is lost with a killed process; the next one starts without it', async () => {
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
  });
});
