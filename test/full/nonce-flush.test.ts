import { describe, expect, test } from '@jest/globals';
import { monotonicClock } from '../../src/base/clock.ts';
import type { BehaviourChange } from '../../src/simulator/settings.ts';
import { authors, type RunningScene, startScene } from '../support/scene.ts';
import { until } from '../support/until.ts';

const POLICY = 'digest_gateway_nonce_policy';
const CHALLENGES = 'digest_gateway_challenges_total';
const CROWD = 12;
const HOUR_MS = 60 * 60_000;

const strict = { qop: 'auth', nc: 'rising', refusedNcKillsNonce: true, staleFlag: 'never' } as const;
const oneTime = { oneTimeNonces: true, staleFlag: 'never' } as const;

interface Scene extends RunningScene {
  /** Lets time pass for the gateway, not for the upstream. */
  advance(ms: number): void;
}

async function setScene(behaviour: BehaviourChange, relay = false): Promise<Scene> {
  let ahead = 0;
  const clock = { now: () => monotonicClock.now() + ahead };
  const pair = await startScene({ behaviour, clock, relay });
  const advance = (ms: number): void => {
    ahead += ms;
  };
  return { ...pair, advance };
}

async function crowds({ get }: RunningScene, rounds: number): Promise<void> {
  for (let round = 0; round < rounds; round += 1) {
    const responses = await Promise.all(Array.from({ length: CROWD }, () => get(authors)));
    await Promise.all(responses.map((response) => response.text()));
    expect(responses.map(({ status }) => status)).toEqual(Array(CROWD).fill(200));
  }
}

/** Challenges for so many requests, one after the other. */
async function challengesFor({ gateway, get }: RunningScene, requests: number): Promise<number> {
  const before = await gateway.metric(CHALLENGES);
  for (let count = 0; count < requests; count += 1) await (await get(authors)).text();
  return (await gateway.metric(CHALLENGES)) - before;
}

/** Exchanges for so many requests, one after the other, which all succeed. */
async function exchangesFor({ simulator, get }: RunningScene, requests: number): Promise<number> {
  const before = simulator.counts('submissions').requests;
  for (let count = 0; count < requests; count += 1) {
    const response = await get(authors);
    await response.text();
    expect(response.status).toBe(200);
  }
  return simulator.counts('submissions').requests - before;
}

async function policyOf({ gateway }: RunningScene): Promise<string | undefined> {
  for (const policy of ['shared', 'exclusive', 'single-use']) {
    if ((await gateway.metric(POLICY, { policy })) === 1) return policy;
  }
  return undefined;
}

async function isLearned(scene: Scene, policy: string): Promise<void> {
  for (let round = 0; round < 40 && (await policyOf(scene)) !== policy; round += 1) await crowds(scene, 1);
  expect(await policyOf(scene)).toBe(policy);
}

test.each([
  ['strict counts', strict, 'exclusive'],
  ['strict counts, stale', { ...strict, staleFlag: 'always' }, 'exclusive'],
  ['no qop', { staleFlag: 'never' }, 'shared'],
  ['counts in any order', { qop: 'auth', nc: 'window', staleFlag: 'never' }, 'shared'],
] as const)(
  'does not change the policy when an upstream drops young nonces: %s',
  async (_title, behaviour, policy) => {
    const scene = await setScene(behaviour, policy === 'exclusive');
    await isLearned(scene, policy);
    for (let flush = 0; flush < 5; flush += 1) {
      await crowds(scene, 2);
      scene.simulator.reset('submissions');
    }
    await crowds(scene, 2);
    expect(await policyOf(scene)).toBe(policy);
    // On a slow machine a flush can look like the end of a short life, which is renewed until it is forgotten.
    scene.advance(HOUR_MS);
    await until(async () => (await challengesFor(scene, 20)) === 0);
  },
);

describe('an hour after the reuse policy was learned', () => {
  const COLD = 12;

  test.each([
    ['nonces serve once', oneTime, 'single-use'],
    ['nonces serve once, stale', { ...oneTime, staleFlag: 'always' }, 'single-use'],
    ['counts have to rise', strict, 'exclusive'],
  ] as const)(
    'it is learned again at the cost of the first time, and no client notices: %s',
    async (_title, behaviour, policy) => {
      const scene = await setScene(behaviour, policy === 'exclusive');
      const first = await exchangesFor(scene, COLD);
      await isLearned(scene, policy);
      scene.advance(HOUR_MS);
      expect(await exchangesFor(scene, COLD)).toBeLessThanOrEqual(first);
      await isLearned(scene, policy);
      const steps = ['exclusive', 'single-use'].slice(0, policy === 'exclusive' ? 1 : 2);
      expect(scene.gateway.logged.map((line) => line['policy'])).toEqual([...steps, ...steps]);
    },
  );

  test.each([
    [
      'from single-use when nonces can be used again',
      { ...oneTime, qop: 'auth' },
      'single-use',
      { oneTimeNonces: false },
    ],
    ['from exclusive when counts may come out of order', strict, 'exclusive', { nc: 'window' }],
  ] as const)('nonces are shared again %s', async (_title, behaviour, policy, change) => {
    const scene = await setScene(behaviour, policy === 'exclusive');
    await isLearned(scene, policy);
    scene.simulator.set('submissions', change);
    scene.advance(HOUR_MS - 60_000);
    await exchangesFor(scene, 1);
    expect(await policyOf(scene)).toBe(policy);
    scene.advance(60_000);
    await exchangesFor(scene, 2);
    expect(await exchangesFor(scene, 20)).toBe(20);
    await crowds(scene, 3);
    expect(await policyOf(scene)).toBe('shared');
  });
});

test.each([
  ['can be used again', { qop: 'auth' }, { cold: 2, known: 1, stale: 2, learned: 1, afterAnHour: 1 }],
  ['serve once', oneTime, { cold: 2, known: 2, stale: 2, learned: 2, afterAnHour: 2 }],
] as const)(
  'exchanges with the upstream for each request where nonces %s',
  async (_title, behaviour, expected) => {
    const scene = await setScene(behaviour);
    const cold = await exchangesFor(scene, 1);
    const known = await exchangesFor(scene, 1);
    scene.simulator.reset('submissions');
    const stale = await exchangesFor(scene, 1);
    await isLearned(scene, 'oneTimeNonces' in behaviour ? 'single-use' : 'shared');
    const learned = await exchangesFor(scene, 1);
    scene.advance(HOUR_MS);
    expect({ cold, known, stale, learned, afterAnHour: await exchangesFor(scene, 1) }).toEqual(expected);
  },
);
