import { setTimeout as delay } from 'node:timers/promises';
import { describe, expect, test } from '@jest/globals';
import type { BehaviourChange } from '../../src/simulator/settings.ts';
import { closedAtEnd } from '../support/closing.ts';
import { credentialSet, type RunningGateway } from '../support/gateway.ts';
import { startArrivals, watchHealth } from '../support/load.ts';
import { startApache } from '../support/real-server.ts';
import { startRedis } from '../support/redis.ts';
import { redisOptions, single } from '../support/redis-store.ts';
import { type Break, type BreakingRelay, startBreakingRelay, startRelay } from '../support/relay.ts';
import { startReplicas } from '../support/replicas.ts';
import { authors, type RunningScene, startScene } from '../support/scene.ts';
import { startServerScene } from '../support/server-scene.ts';
import { until } from '../support/until.ts';

const NAME = 'submissions';
const RTT_MS = 100;
const CROWD = 12;

type Upstream = [string, BehaviourChange];

const upstreams: Upstream[] = [
  ['strict nc', { qop: 'auth', nc: 'rising', refusedNcKillsNonce: true, staleFlag: 'never' }],
  ['one-time nonces', { oneTimeNonces: true, staleFlag: 'never' }],
  ['no qop', {}],
  ['a window of nc, never stale', { qop: 'auth', nc: 'window', staleFlag: 'never' }],
];

/** Where the kind of upstream matters less, and the time that a test takes more. */
const [strict, , noQop] = upstreams as [Upstream, Upstream, Upstream, Upstream];

const slowRelay = (port: number) => startRelay(port, () => ({ requestMs: RTT_MS / 2, answerMs: RTT_MS / 2 }));

async function get({ origin }: Pick<RunningGateway, 'origin'>): Promise<number> {
  const answer = await fetch(`${origin}${authors}`);
  await answer.arrayBuffer();
  return answer.status;
}

/** Requests that are under way at the same time; what a client saw of each. */
async function crowd(
  gateways: readonly RunningGateway[],
): Promise<{ statuses: number[]; slowestMs: number }> {
  let slowestMs = 0;
  const ask = async (_: unknown, index: number): Promise<number> => {
    const begun = performance.now();
    const status = await get(gateways[index % gateways.length] as RunningGateway);
    slowestMs = Math.max(slowestMs, performance.now() - begun);
    return status;
  };
  const statuses = await Promise.all(Array.from({ length: CROWD }, ask));
  return { statuses, slowestMs };
}

const SERVED = Array(CROWD).fill(200);

/** Each time that the gateway called a credential refused. */
const refusals = ({ logged }: RunningGateway) =>
  logged.filter(({ code }) => code === 'upstream-credential-refused');

const stateOf = (gateway: RunningGateway) =>
  gateway.metric('digest_gateway_credential_state', { deployment: NAME, state: 'in-use' });

/** While a crowd is under way, the upstream drops its nonces three times within one round trip. */
async function flush(simulator: RunningScene['simulator']): Promise<void> {
  await delay(RTT_MS / 2);
  for (const _ of [1, 2, 3]) {
    simulator.reset(NAME);
    await delay(RTT_MS / 4);
  }
}

/** Crowds go through three faults; no client and no balancer notices. */
async function expectNobodyToNotice(
  what: string,
  simulator: RunningScene['simulator'],
  gateways: readonly RunningGateway[],
  fault: () => Promise<void> | void,
): Promise<void> {
  for (const _ of [1, 2, 3]) expect((await crowd(gateways)).statuses).toEqual(SERVED);
  const health = gateways.map((gateway) => watchHealth(gateway));
  const failed: number[] = [];
  let slowest = 0;
  let challenges = 0;
  for (const _ of [1, 2, 3]) {
    const [{ statuses, slowestMs }] = await Promise.all([crowd(gateways), fault()]);
    failed.push(...statuses.filter((status) => status !== 200));
    slowest = Math.max(slowest, slowestMs);
    challenges += simulator.counts(NAME).challenges;
  }
  const seen = await Promise.all(health.map((each) => each.stop()));
  const unready = seen.flatMap((each) => each.unready);
  process.stdout.write(
    `${what}: ${3 * CROWD} requests, ${failed.length} failed, slowest ${slowest.toFixed(0)} ms, ${unready.length} polls unready, ${challenges} challenges\n`,
  );
  expect([failed, unready]).toEqual([[], []]);
  for (const gateway of gateways) expect([refusals(gateway), await stateOf(gateway)]).toEqual([[], 1]);
  expect((await crowd(gateways)).statuses).toEqual(SERVED);
}

describe.each(upstreams)('%s', (title, behaviour) => {
  test('fails no request when nonces are dropped several times within a round trip', async () => {
    const { simulator, gateway } = await startScene({ behaviour, relay: slowRelay });
    await expectNobodyToNotice(`flush, ${title}`, simulator, [gateway], () => flush(simulator));
  });

  test.each<Break>(['unseen', 'seen'])(
    'connections that break under requests fail none of them: %s',
    async (kind) => {
      let relay: BreakingRelay | undefined;
      const { simulator, gateway } = await startScene({
        behaviour,
        relay: async (port) => {
          relay = await startBreakingRelay(port);
          return relay;
        },
      });
      await expectNobodyToNotice(`reset (${kind}), ${title}`, simulator, [gateway], () =>
        relay?.breakOpen(kind),
      );
      expect(
        await gateway.metric('digest_gateway_upstream_attempts_total', { result: 'error' }),
      ).toBeGreaterThan(0);
    },
  );
});

test.each([strict, noQop])(
  'keeps two replicas ready that are affected at once: %s',
  async (title, behaviour) => {
    const redis = await closedAtEnd(startRedis());
    const { simulator, replica } = await startReplicas({ behaviour, relay: slowRelay });
    const options = redisOptions(single(redis.port));
    const gateways = [await replica(options), await replica(options)];
    await expectNobodyToNotice(`flush, two replicas, ${title}`, simulator, gateways, () => flush(simulator));
  },
);

describe('Apache that wants each nc in order', () => {
  async function start() {
    let relay: BreakingRelay | undefined;
    const scene = await startServerScene(startApache({ checkCount: true }), {}, async (port) => {
      relay = await startBreakingRelay(port);
      return relay;
    });
    if (relay === undefined) throw new Error('no relay');
    return { ...scene, relay };
  }

  test.each<Break>(['unseen', 'seen'])(
    'a connection that breaks under a request leaves the credential as it is: %s',
    async (kind) => {
      const { ask, relay, gateway, attempts } = await start();
      for (const _ of [1, 2, 3]) expect((await ask('/api/abstracts')).status).toBe(200);
      for (const _ of [1, 2, 3]) {
        relay.breakNext(kind);
        expect((await ask('/api/abstracts')).status).toBe(200);
        expect((await ask('/api/abstracts')).status).toBe(200);
      }
      expect((await attempts())['error']).toBe(3);
      // The repeat asks for a nonce of its own, so that no count is in doubt.
      expect((await attempts())['stale'] ?? 0).toBe(0);
      expect(refusals(gateway)).toEqual([]);
    },
  );

  test('repeats on a new connection, not on the next dead one', async () => {
    const { ask, relay, attempts } = await start();
    const crowd = () => Promise.all(Array.from({ length: 8 }, () => ask('/api/abstracts')));
    await crowd();
    relay.breakOpen('unseen');
    const before = relay.connections;
    expect((await ask('/api/abstracts')).status).toBe(200);
    expect([(await attempts())['error'], relay.connections > before]).toEqual([1, true]);
  });
});

describe('a rotation behind a long round trip', () => {
  test.each([strict, noQop])(
    'is never seen by a balancer that asks for readiness: %s',
    async (title, behaviour) => {
      const pair = await startScene({ behaviour, relay: slowRelay });
      expect((await pair.get(authors)).status).toBe(200);
      pair.gateway.plane.offer(await credentialSet(pair.gateway, NAME, 'demo-api-key', 'another'));
      const load = startArrivals(30, () => get(pair.gateway));
      const rotations = (result: string) =>
        pair.gateway.metric('digest_gateway_credential_rotations_total', { result });
      await until(async () => (await rotations('waiting')) === 1);
      const health = watchHealth(pair.gateway);
      await until(() => load.answered >= 15);
      pair.simulator.set(NAME, {
        accounts: [{ username: 'demo-user', password: 'another', sites: ['demo'] }],
      });
      await until(async () => (await rotations('promoted')) === 1);
      const promoted = load.answered;
      await until(() => load.answered >= promoted + 30);
      const report = await load.stop();
      const seen = await health.stop();
      const failed = report.requests - (report.outcomes['200'] ?? 0);
      process.stdout.write(
        `rotation, ${title}: ${report.requests} requests, ${failed} failed, slowest ${report.slowestMs.toFixed(0)} ms, ${seen.unready.length} of ${seen.polls} polls unready\n`,
      );
      expect(report.outcomes).toEqual({ 200: report.requests });
      expect([seen.unready, refusals(pair.gateway)]).toEqual([[], []]);
    },
  );
});
