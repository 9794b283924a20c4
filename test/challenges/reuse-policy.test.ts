import { describe, expect, test } from '@jest/globals';
import { ReusePolicy, type ReuseRefusal } from '../../src/challenges/reuse-policy.ts';
import type { NoncePolicy } from '../../src/challenges/store/store.ts';

const firstReuse = {
  ageMs: 20,
  accepted: 1,
  contested: false,
  counted: true,
  lifetimeMs: undefined,
};
const contested = { ...firstReuse, accepted: 9, contested: true };

function learning(policy: NoncePolicy | 'auto' = 'auto') {
  let now = 0;
  const steps: string[] = [];
  const reuse = new ReusePolicy(policy, { now: () => now });
  const note = (event: () => boolean): void => {
    const from = reuse.policy;
    if (event()) steps.push(`${from} -> ${reuse.policy}`);
  };
  const learned = {
    get policy(): NoncePolicy {
      return reuse.policy;
    },
    refused: (refusal: ReuseRefusal): void => note(() => reuse.refused(refusal)),
    overtaken: (): void => note(() => reuse.overtaken()),
    reused: (): void => reuse.reused(),
    adopt: (adopted: NoncePolicy): void => reuse.adopt(adopted),
    forget: (): void => reuse.forget(),
  };
  const advance = (ms: number): void => {
    now += ms;
  };
  return { learned, steps, advance };
}

describe('a step to a stricter policy', () => {
  test('is made after three events in which nonces were refused at their first reuse', () => {
    const { learned, steps } = learning();
    const policies = Array.from({ length: 10 }, () => {
      learned.refused(firstReuse);
      return learned.policy;
    });
    expect(policies.slice(0, 6)).toEqual([
      'shared',
      'shared',
      'exclusive',
      'exclusive',
      'exclusive',
      'single-use',
    ]);
    expect(steps).toEqual(['shared -> exclusive', 'exclusive -> single-use']);
  });

  test('is made although another process tells the policy that it has already', () => {
    const { learned, steps } = learning();
    learned.refused(firstReuse);
    learned.refused(firstReuse);
    learned.adopt('shared');
    learned.refused(firstReuse);
    expect(steps).toEqual(['shared -> exclusive']);
  });

  test('is not made while reuse is accepted in between', () => {
    const { learned, steps } = learning();
    for (let round = 0; round < 9; round += 1) {
      learned.refused(firstReuse);
      learned.refused(firstReuse);
      learned.reused();
    }
    expect(steps).toEqual([]);
  });

  test.each([
    ['that had served several requests, one at a time', { ...contested, contested: false }],
    ['without a count, which several requests used at once', { ...contested, counted: false }],
    ['that is old enough to expire', { ...firstReuse, ageMs: 400, lifetimeMs: 700 }],
    ['at an age that says nothing', { ...firstReuse, ageMs: 1_500 }],
  ])('is not made for refusals of a nonce %s', (_title, refusal) => {
    const { learned, steps } = learning();
    for (let count = 0; count < 9; count += 1) learned.refused(refusal);
    expect(steps).toEqual([]);
  });

  test('is not made for young nonces refused now and then', () => {
    const { learned, steps, advance } = learning();
    for (let count = 0; count < 9; count += 1) {
      learned.refused(firstReuse);
      advance(20_000);
    }
    expect(steps).toEqual([]);
  });

  test('is made after three events with several requests at once, and only to exclusive', () => {
    const { learned, steps } = learning();
    for (let count = 0; count < 9; count += 1) learned.refused(contested);
    expect(steps).toEqual(['shared -> exclusive']);
  });

  test('is made after three events with several requests at once although reuse is accepted in between', () => {
    const { learned, steps } = learning();
    for (const refusal of [{ ...contested, accepted: 1 }, contested, { ...contested, accepted: 1 }]) {
      expect(steps).toEqual([]);
      learned.reused();
      learned.refused(refusal);
    }
    expect(steps).toEqual(['shared -> exclusive']);
  });

  test('is made at once when a count was overtaken, and only to exclusive', () => {
    const { learned, steps } = learning();
    learned.overtaken();
    learned.overtaken();
    expect(steps).toEqual(['shared -> exclusive']);
  });
});

test('a policy of another process is taken over, stricter or freer, without a step', () => {
  const { learned, steps } = learning();
  const adopted = (['single-use', 'exclusive', 'shared'] as const).map((policy) => {
    learned.adopt(policy);
    return learned.policy;
  });
  expect([adopted, steps]).toEqual([['single-use', 'exclusive', 'shared'], []]);
});

test('once forgotten, the policy is shared, and two events of before count no more', () => {
  const { learned, steps } = learning();
  learned.adopt('single-use');
  learned.forget();
  expect(learned.policy).toBe('shared');
  for (let count = 0; count < 2; count += 1) learned.refused({ ...contested, accepted: 1 });
  learned.forget();
  learned.refused({ ...contested, accepted: 1 });
  expect(steps).toEqual([]);
});

test('a policy that is set stays', () => {
  const scene = learning('shared');
  for (let count = 0; count < 9; count += 1) scene.learned.refused(firstReuse);
  scene.learned.overtaken();
  scene.learned.adopt('exclusive');
  expect([scene.learned.policy, scene.steps]).toEqual(['shared', []]);
  const { learned } = learning('exclusive');
  for (let count = 0; count < 9; count += 1) learned.refused(firstReuse);
  learned.forget();
  expect(learned.policy).toBe('exclusive');
});

describe('a refusal', () => {
  test.each([
    ['of a nonce that is a second old', { ageMs: 1_000 }],
    ['of a nonce that is a second old and lives for long', { ageMs: 1_000, lifetimeMs: 100_000 }],
    ['of a nonce in the second half of its life', { ageMs: 20, lifetimeMs: 40 }],
  ])('%s has another reason than reuse', (_, change) => {
    const { learned, steps } = learning();
    for (let count = 0; count < 5; count += 1) learned.refused({ ...firstReuse, ...change });
    expect(steps).toEqual([]);
    const young = { ...firstReuse, ...change, ageMs: change.ageMs - 1 };
    for (let count = 0; count < 3; count += 1) learned.refused(young);
    expect(steps).toEqual(['shared -> exclusive']);
  });

  test.each([
    ['with a count, at its first reuse', firstReuse],
    ['while others used the nonce', contested],
  ])('%s counts for less than half a minute', (_, refusal) => {
    const { learned, steps, advance } = learning();
    learned.refused(refusal);
    advance(15_000);
    learned.refused(refusal);
    advance(15_000);
    learned.refused(refusal);
    expect(steps).toEqual([]);
    advance(14_999);
    learned.refused(refusal);
    expect(steps).toEqual(['shared -> exclusive']);
  });
});
