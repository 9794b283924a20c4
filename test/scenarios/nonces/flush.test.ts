import { expect, test } from '@jest/globals';
import { monotonicClock } from '../../../src/base/clock.ts';
import type { BehaviourChange } from '../../../src/simulator/settings.ts';
import { authors, type RunningScene, startScene } from '../../support/scene.ts';
import { until } from '../../support/until.ts';

const POLICY = 'digest_gateway_nonce_policy';
const CHALLENGES = 'digest_gateway_challenges_total';
const CROWD = 12;
const MINUTE_MS = 60_000;

const strict = { qop: 'auth', nc: 'rising', refusedNcKillsNonce: true, staleFlag: 'never' } as const;
const oneTime = { oneTimeNonces: true, staleFlag: 'never' } as const;

interface Scene extends RunningScene {
  /** Lets time pass, as far as trials are concerned. */
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
    // On a slow machine a flush can look like the end of a short life, which is renewed until the next trial.
    await until(async () => (await challengesFor(scene, 20)) === 0);
  },
);

test('steps back from single-use when nonces can be used again', async () => {
  const scene = await setScene({ ...oneTime, qop: 'auth' });
  await isLearned(scene, 'single-use');
  expect(await challengesFor(scene, 10)).toBe(10);
  scene.simulator.set('submissions', { oneTimeNonces: false });
  expect(await challengesFor(scene, 10)).toBe(10);

  scene.advance(10 * MINUTE_MS);
  expect(await challengesFor(scene, 10)).toBeLessThanOrEqual(4);
  expect(await policyOf(scene)).toBe('exclusive');
  scene.advance(10 * MINUTE_MS);
  expect(await challengesFor(scene, 10)).toBe(0);
  expect(await policyOf(scene)).toBe('shared');
  expect(
    scene.gateway.logged.map(({ policy, msg }) => [policy, /stricter|freer/.exec(String(msg))?.[0]]),
  ).toEqual([
    ['exclusive', 'stricter'],
    ['single-use', 'stricter'],
    ['exclusive', 'freer'],
    ['shared', 'freer'],
  ]);
  expect(await scene.gateway.metric('digest_gateway_nonce_policy_steps_total')).toBe(4);
});

test('loses no challenge and no request by a failed trial of a wider policy', async () => {
  const scene = await setScene(oneTime);
  await isLearned(scene, 'single-use');
  scene.advance(10 * MINUTE_MS);
  expect(await challengesFor(scene, 10)).toBe(10);
  expect(scene.simulator.counts('submissions').refused['nonce-used']).toBeGreaterThan(0);
  expect(await policyOf(scene)).toBe('single-use');
});

test('steps back from exclusive where counts may come out of order', async () => {
  const scene = await setScene(strict, true);
  await isLearned(scene, 'exclusive');
  await crowds(scene, 2);
  scene.advance(10 * MINUTE_MS);
  expect(await challengesFor(scene, 20)).toBe(1);
  expect(await policyOf(scene)).toBe('exclusive');

  scene.simulator.set('submissions', { nc: 'window' });
  scene.advance(10 * MINUTE_MS);
  expect(await challengesFor(scene, 20)).toBe(0);
  expect(await policyOf(scene)).toBe('shared');
});
