import { describe, expect, test } from '@jest/globals';
import { Lifetime } from '../../src/challenges/learning.ts';

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

test('a life that was learned is forgotten, made longer or shorter as others find', () => {
  const lifetime = new Lifetime();
  const lives = [2_000, 5_000, undefined, 400].map((ms) => {
    lifetime.adopt(ms);
    return lifetime.ms;
  });
  expect(lives).toEqual([2_000, 5_000, undefined, undefined]);
});

describe('at its bounds', () => {
  test('an age of half a second is a life, a shorter one is none', () => {
    const lifetime = new Lifetime();
    lifetime.refused(499);
    expect(lifetime.ms).toBeUndefined();
    lifetime.refused(500);
    expect(lifetime.ms).toBe(500);
  });

  test('a life is at most 30 days, also one that another process tells', () => {
    const days = 24 * 60 * 60_000;
    const lifetime = new Lifetime();
    lifetime.refused(31 * days);
    expect(lifetime.ms).toBe(30 * days);
    const adopting = new Lifetime();
    const adopted = [499, 30 * days + 1, 500, 30 * days].map((ms) => {
      adopting.adopt(ms);
      return adopting.ms;
    });
    expect(adopted).toEqual([undefined, undefined, 500, 30 * days]);
  });

  test('a life that another process tells counts only if no older nonce was accepted here', () => {
    const lifetime = new Lifetime();
    lifetime.accepted(5_000);
    lifetime.adopt(5_000);
    expect(lifetime.ms).toBe(undefined);
    lifetime.adopt(5_001);
    expect(lifetime.ms).toBe(5_001);
  });

  test('a nonce is to be renewed after more than 70 % of its life', () => {
    const lifetime = new Lifetime();
    expect(lifetime.isAging(1e9)).toBe(false);
    lifetime.refused(10_000);
    expect([7_000, 7_001].map((age) => lifetime.isAging(age))).toEqual([false, true]);
  });

  test('three refusals that come too early are needed in a row', () => {
    const lifetime = new Lifetime();
    lifetime.accepted(9_000);
    for (const age of [1_000, 1_000]) lifetime.refused(age);
    lifetime.accepted(9_001);
    for (const age of [1_000, 1_000]) lifetime.refused(age);
    // An accepted nonce that is no older says nothing new.
    lifetime.accepted(9_001);
    expect(lifetime.ms).toBeUndefined();
    lifetime.refused(1_000);
    expect(lifetime.ms).toBe(1_000);
    // Earlier acceptances count no more.
    lifetime.adopt(2_000);
    expect(lifetime.ms).toBe(2_000);
  });

  test('an age at which nonces were accepted and refused is where they end', () => {
    const accepted = new Lifetime();
    accepted.accepted(9_000);
    accepted.refused(9_000);
    expect(accepted.ms).toBe(9_000);
    const refused = new Lifetime();
    refused.refused(9_000);
    refused.accepted(9_000);
    expect(refused.ms).toBe(9_000);
  });
});

test('once forgotten, a life is learned from one refusal again, at whatever age nonces were accepted', () => {
  const lifetime = new Lifetime();
  lifetime.accepted(20_000);
  for (let count = 0; count < 2; count += 1) lifetime.refused(10_000);
  lifetime.forget();
  expect(lifetime.ms).toBe(undefined);
  lifetime.refused(9_000);
  expect(lifetime.ms).toBe(9_000);
});
