import { describe, expect, test } from '@jest/globals';
import { Lifetime } from '../../src/challenges/lifetime.ts';

describe('the lifetime of nonces', () => {
  test('is the youngest age at which one was refused', () => {
    const lifetime = new Lifetime();
    expect(lifetime.ms).toBeUndefined();
    for (const age of [450_000, 310_000, 320_000]) lifetime.refused(age);
    expect(lifetime.ms).toBe(310_000);
  });

  test('is not learned from refusals that have another reason than age', () => {
    const lifetime = new Lifetime();
    lifetime.refused(20);
    lifetime.accepted(200_000);
    lifetime.refused(1_000);
    lifetime.refused(2_000);
    expect(lifetime.ms).toBeUndefined();
  });

  test('is forgotten when a nonce lives longer', () => {
    const lifetime = new Lifetime();
    lifetime.refused(60_000);
    lifetime.accepted(90_000);
    expect(lifetime.ms).toBeUndefined();
  });

  test('follows an upstream that was set to a shorter one', () => {
    const lifetime = new Lifetime();
    lifetime.accepted(290_000);
    lifetime.refused(300_000);
    for (let count = 0; count < 3; count += 1) lifetime.refused(60_000);
    expect(lifetime.ms).toBe(60_000);
  });
});
