import { describe, expect, test } from '@jest/globals';
import type { NoncePolicy } from '../../src/challenges/store.ts';
import { Tolerance } from '../../src/challenges/tolerance.ts';
import { type Challenge, parseChallenges } from '../../src/digest/challenge.ts';

const unknown = { contested: false, oldestAcceptedMs: 5, lifetimeMs: undefined };
const young = { ...unknown, ageMs: 20, uses: 1 };
const early = { ...unknown, ageMs: 2_000, uses: 9, oldestAcceptedMs: 60_000 };
const contested = { ...unknown, ageMs: 20, uses: 9, contested: true };
const expired = { ageMs: 900, uses: 900, contested: true, oldestAcceptedMs: 890, lifetimeMs: 950 };

function challenge(text = 'realm="r", nonce="n"'): Challenge {
  const [parsed] = parseChallenges([`Digest ${text}`]);
  if (parsed === undefined) throw new Error('no challenge');
  return parsed;
}

function learning(policy: NoncePolicy | 'auto' = 'auto') {
  let now = 0;
  const steps: NoncePolicy[] = [];
  const tolerance = new Tolerance({ policy, now: () => now, onStep: (step) => steps.push(step) });
  tolerance.challenged(challenge());
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
    expect(tolerance.learned(9_000)).toEqual({
      realm: 'r',
      algorithm: 'MD5',
      policy: 'single-use',
      lifetimeMs: 9_000,
    });
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

  test('is forgotten when the upstream changes its realm or algorithm', () => {
    const { tolerance } = learning();
    for (let count = 0; count < 3; count += 1) tolerance.refused(young);
    tolerance.challenged(challenge());
    expect(tolerance.policy).toBe('exclusive');
    tolerance.challenged(challenge('realm="r", nonce="n", qop="auth", algorithm=SHA-256'));
    expect(tolerance.policy).toBe('shared');
  });

  test('is taken over from another process for the same realm and algorithm only', () => {
    const { tolerance } = learning();
    tolerance.told({ realm: 'other', algorithm: 'MD5', policy: 'exclusive', lifetimeMs: undefined });
    expect(tolerance.policy).toBe('shared');
    tolerance.told({ realm: 'r', algorithm: 'MD5', policy: 'single-use', lifetimeMs: undefined });
    expect(tolerance.policy).toBe('single-use');
  });
});

test('a policy that is set stays', () => {
  const { tolerance, steps } = learning('shared');
  for (let count = 0; count < 9; count += 1) tolerance.refused(young);
  expect([tolerance.policy, steps]).toEqual(['shared', []]);
});
