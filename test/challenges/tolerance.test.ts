import { describe, expect, test } from '@jest/globals';
import type { NoncePolicy } from '../../src/challenges/store.ts';
import { Tolerance } from '../../src/challenges/tolerance.ts';

const unknown = { contested: false, counted: false, oldestAcceptedMs: 5, lifetimeMs: undefined };
const young = { ...unknown, ageMs: 20, uses: 1 };
const early = { ...unknown, ageMs: 2_000, uses: 9, oldestAcceptedMs: 60_000 };
const contested = { ...unknown, ageMs: 20, uses: 9, contested: true };
const expired = {
  ageMs: 900,
  uses: 900,
  contested: true,
  counted: true,
  oldestAcceptedMs: 890,
  lifetimeMs: 950,
};

function learning(policy: NoncePolicy | 'auto' = 'auto') {
  let now = 0;
  const steps: NoncePolicy[] = [];
  const tolerance = new Tolerance({ policy, now: () => now, onStep: (step) => steps.push(step) });
  const advance = (ms: number): void => {
    now += ms;
  };
  return { tolerance, steps, advance };
}

describe('a policy that is learned', () => {
  test.each([
    ['refused at their first reuse', young],
    ['refused while others used them', contested],
    ['refused at an age that was fine before', early],
  ])('goes one step after three young nonces %s', (_title, refusal) => {
    const { tolerance, steps } = learning();
    for (const policy of [
      'shared',
      'shared',
      'exclusive',
      'exclusive',
      'exclusive',
      'single-use',
      'single-use',
    ]) {
      tolerance.refused(refusal);
      expect(tolerance.policy).toBe(policy);
    }
    expect(steps).toEqual(['exclusive', 'single-use']);
  });

  test('does not move for nonces that expired, or for young ones now and then', () => {
    const { tolerance, advance } = learning();
    for (let count = 0; count < 9; count += 1) {
      tolerance.refused(expired);
      tolerance.refused(young);
      advance(20_000);
    }
    expect(tolerance.policy).toBe('shared');
  });

  test('goes one step at once for a brand-new nonce whose count was overtaken', () => {
    const { tolerance } = learning();
    tolerance.refused({ ...contested, counted: true, ageMs: 400 });
    expect(tolerance.policy).toBe('shared');
    tolerance.refused({ ...contested, counted: true });
    expect(tolerance.policy).toBe('exclusive');
  });

  test('starts again for another upstream, or where another process is', () => {
    const { tolerance } = learning();
    tolerance.told('single-use');
    expect(tolerance.policy).toBe('single-use');
    tolerance.forget();
    expect(tolerance.policy).toBe('shared');
  });
});

test('a policy that is set stays', () => {
  const { tolerance, steps } = learning('shared');
  for (let count = 0; count < 9; count += 1) tolerance.refused(young);
  tolerance.told('exclusive');
  expect([tolerance.policy, steps]).toEqual(['shared', []]);
});
