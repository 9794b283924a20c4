import { describe, expect, test } from '@jest/globals';
import { ReusePolicy, type ReusePolicyOptions } from '../../src/challenges/reuse-policy.ts';
import type { NoncePolicy } from '../../src/challenges/store/store.ts';

const MINUTE_MS = 60_000;
const firstReuse = {
  ageMs: 20,
  accepted: 1,
  contested: false,
  counted: true,
  lifetimeMs: undefined,
};
const contested = { ...firstReuse, accepted: 9, contested: true };
const inOrder = { counted: true, outOfOrder: false, onTrial: false };

function learning(policy: ReusePolicyOptions['policy'] = 'auto') {
  let now = 0;
  const steps: string[] = [];
  const onStep = (to: NoncePolicy, from: NoncePolicy): void => void steps.push(`${from} -> ${to}`);
  const learned = new ReusePolicy({ policy, now: () => now, onStep });
  const advance = (ms: number): void => {
    now += ms;
  };
  return { learned, steps, advance };
}

/** Whether a trial is due within a minute more, and is begun. */
function tries({ learned, advance }: ReturnType<typeof learning>, afterMs: number): boolean {
  advance(afterMs);
  if (!learned.beginTrial()) return false;
  learned.allowTrial();
  return learned.takeTrial();
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
      learned.reused(inOrder);
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
      learned.reused(inOrder);
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

describe('a step is taken back', () => {
  test('to exclusive when a nonce was accepted twice', () => {
    const scene = learning();
    for (let count = 0; count < 6; count += 1) scene.learned.refused(firstReuse);
    expect(tries(scene, 4 * MINUTE_MS)).toBe(true);
    scene.learned.reused({ ...inOrder, onTrial: true });
    expect(scene.learned.policy).toBe('exclusive');
    expect(scene.steps.at(-1)).toBe('single-use -> exclusive');
  });

  test('to shared when counts were accepted out of order, not when they were in order', () => {
    const scene = learning();
    scene.learned.overtaken();
    expect(tries(scene, MINUTE_MS)).toBe(true);
    scene.learned.reused({ ...inOrder, onTrial: true });
    expect(scene.learned.policy).toBe('exclusive');
    scene.learned.reused({ ...inOrder, onTrial: true, outOfOrder: true });
    expect(scene.learned.policy).toBe('shared');
  });

  test('to shared when a nonce without a count was accepted again', () => {
    const scene = learning();
    for (let count = 0; count < 3; count += 1) scene.learned.refused({ ...firstReuse, counted: false });
    scene.learned.reused({ counted: false, outOfOrder: false, onTrial: false });
    expect(scene.learned.policy).toBe('exclusive');
    scene.learned.reused({ counted: false, outOfOrder: false, onTrial: true });
    expect(scene.learned.policy).toBe('shared');
  });

  test('after a trial a minute later, and each time after twice as long, up to an hour', () => {
    const scene = learning();
    scene.learned.overtaken();
    const waits: number[] = [];
    for (let trial = 0; trial < 8; trial += 1) {
      let minutes = 1;
      while (!tries(scene, MINUTE_MS)) minutes += 1;
      waits.push(minutes);
      expect(scene.learned.takeTrial()).toBe(false);
      scene.learned.trialRefused();
    }
    expect(waits).toEqual([1, 2, 4, 8, 16, 32, 60, 60]);
    expect(scene.learned.policy).toBe('exclusive');
  });

  test('when another process found that it works', () => {
    const { learned, steps } = learning();
    learned.overtaken();
    learned.adopt('shared');
    expect([learned.policy, steps.length]).toEqual(['shared', 1]);
  });
});

test('a policy that another process learned is tried, too', () => {
  const scene = learning();
  scene.learned.adopt('single-use');
  expect([scene.learned.policy, tries(scene, MINUTE_MS)]).toEqual(['single-use', true]);
});

test('another upstream begins with shared', () => {
  const { learned } = learning();
  learned.adopt('single-use');
  learned.forget();
  expect(learned.policy).toBe('shared');
});

test('a policy that is set stays, and nothing is tried', () => {
  const scene = learning('shared');
  for (let count = 0; count < 9; count += 1) scene.learned.refused(firstReuse);
  scene.learned.overtaken();
  scene.learned.adopt('exclusive');
  expect([scene.learned.policy, scene.steps, tries(scene, 60 * MINUTE_MS)]).toEqual(['shared', [], false]);
  const { learned } = learning('exclusive');
  learned.reused({ ...inOrder, outOfOrder: true });
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

describe('a trial', () => {
  test('is over after it was taken, and is not taken when the policy is shared again', () => {
    const { learned, advance } = learning('auto');
    learned.overtaken();
    expect(learned.trialMs).toBe(MINUTE_MS);
    advance(MINUTE_MS);
    expect([learned.beginTrial(), learned.beginTrial()]).toEqual([true, false]);
    learned.allowTrial();
    expect([learned.takeTrial(), learned.takeTrial()]).toEqual([true, false]);
    learned.allowTrial();
    learned.adopt('shared');
    expect(learned.takeTrial()).toBe(false);
    learned.allowTrial();
    expect(learned.takeTrial()).toBe(false);
    learned.allowTrial();
    learned.overtaken();
    expect(learned.takeTrial()).toBe(false);
  });

  test.each([
    ['within an hour is due after twice the time', 60 * MINUTE_MS - 1, 2 * MINUTE_MS],
    ['an hour later is due after a minute', 60 * MINUTE_MS, MINUTE_MS],
  ])('of a lesson that is learned again %s', (_, afterMs, trialMs) => {
    const { learned, advance } = learning();
    learned.overtaken();
    learned.reused({ ...inOrder, outOfOrder: true });
    advance(afterMs);
    learned.overtaken();
    expect([learned.policy, learned.trialMs]).toEqual(['exclusive', trialMs]);
  });

  test('is not begun while the policy is shared, however long that is', () => {
    const { learned, advance, steps } = learning('auto');
    learned.overtaken();
    learned.reused({ ...inOrder, outOfOrder: true });
    expect(steps.at(-1)).toBe('exclusive -> shared');
    advance(100 * MINUTE_MS);
    expect(learned.beginTrial()).toBe(false);
    learned.overtaken();
    learned.adopt('shared');
    advance(100 * MINUTE_MS);
    expect(learned.beginTrial()).toBe(false);
  });

  test('of the next step back is due after a pause', () => {
    const { learned, advance, steps } = learning('auto');
    for (let count = 0; count < 6; count += 1) learned.refused(firstReuse);
    expect(learned.policy).toBe('single-use');
    advance(10 * MINUTE_MS);
    learned.reused(inOrder);
    expect(steps.at(-1)).toBe('single-use -> exclusive');
    const { trialMs } = learned;
    advance(trialMs - 1);
    expect(learned.beginTrial()).toBe(false);
    advance(1);
    expect(learned.beginTrial()).toBe(true);
  });

  test('is due a minute after the first lesson about another upstream', () => {
    const { learned, advance } = learning('auto');
    for (let count = 0; count < 3; count += 1) {
      learned.overtaken();
      advance(10 * MINUTE_MS);
      learned.trialRefused();
    }
    learned.forget();
    expect([learned.trialMs, learned.policy]).toEqual([MINUTE_MS, 'shared']);
    advance(100 * MINUTE_MS);
    expect(learned.beginTrial()).toBe(false);
  });
});

test('what another process learned is told again without putting the trial off', () => {
  const { learned, advance } = learning('auto');
  learned.adopt('exclusive');
  advance(MINUTE_MS - 1);
  learned.adopt('exclusive');
  advance(1);
  expect(learned.beginTrial()).toBe(true);
});
