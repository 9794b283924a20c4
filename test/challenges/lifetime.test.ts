import { describe, expect, test } from '@jest/globals';
import { Lifetime } from '../../src/challenges/lifetime.ts';

const silent = { hintMs: undefined };
const says10s = { hintMs: 10_000 };

describe('the lifetime of nonces', () => {
  test('is the youngest age at which one was refused', () => {
    const lifetime = new Lifetime(() => 0);
    expect(lifetime.ms).toBeUndefined();
    for (const age of [450_000, 310_000, 320_000]) lifetime.refused(age, silent);
    expect(lifetime.ms).toBe(310_000);
  });

  test('is not learned from refusals that have another reason than age', () => {
    const lifetime = new Lifetime(() => 0);
    lifetime.refused(20, silent);
    lifetime.accepted(200_000, silent);
    lifetime.refused(1_000, silent);
    lifetime.refused(2_000, silent);
    expect(lifetime.ms).toBeUndefined();
  });

  test('is forgotten when a nonce lives longer', () => {
    const lifetime = new Lifetime(() => 0);
    lifetime.refused(60_000, silent);
    lifetime.accepted(90_000, silent);
    expect(lifetime.ms).toBeUndefined();
  });

  test('follows an upstream that was set to a shorter one', () => {
    const lifetime = new Lifetime(() => 0);
    lifetime.accepted(290_000, silent);
    lifetime.refused(300_000, silent);
    for (let count = 0; count < 3; count += 1) lifetime.refused(60_000, silent);
    expect(lifetime.ms).toBe(60_000);
  });
});

describe('the expiry that a nonce carries', () => {
  test('counts for each nonce once a refusal came when it said', () => {
    const lifetime = new Lifetime(() => 0);
    expect(lifetime.of(says10s)).toBeUndefined();
    lifetime.refused(10_400, says10s);
    expect(lifetime.of(says10s)).toBe(10_000);
    expect(lifetime.of({ hintMs: 3_000 })).toBe(3_000);
    expect(lifetime.of(silent)).toBe(10_400);
  });

  test.each([
    ['a refusal long after it, which proves nothing', 60_000],
    ['a refusal before it', 5_000],
  ])('does not count after %s', (_title, ageMs) => {
    const lifetime = new Lifetime(() => 0);
    lifetime.refused(ageMs, says10s);
    expect(lifetime.of(says10s)).toBe(ageMs);
  });

  test('counts no more after a nonce was accepted later, or refused sooner', () => {
    for (const against of ['accepted', 'refused'] as const) {
      const lifetime = new Lifetime(() => 0);
      lifetime.refused(10_400, says10s);
      lifetime[against](against === 'accepted' ? 11_500 : 4_000, says10s);
      expect(lifetime.of(says10s)).not.toBe(10_000);
    }
  });
});

describe('a life that was learned', () => {
  const MINUTE_MS = 60_000;

  function scene() {
    let now = 0;
    const lifetime = new Lifetime(() => now);
    const advance = (ms: number): void => {
      now += ms;
    };
    return { lifetime, advance };
  }

  test('from one refusal that is not called stale is tried at once', () => {
    const { lifetime } = scene();
    lifetime.refused(2_000, silent);
    expect([lifetime.takeTrial(), lifetime.takeTrial()]).toEqual([true, false]);
    lifetime.accepted(2_100, silent);
    expect(lifetime.ms).toBeUndefined();
  });

  test('is tried after a minute, then after twice as long, up to a day', () => {
    const { lifetime, advance } = scene();
    lifetime.refused(2_000, silent, true);
    const waits = Array.from({ length: 12 }, () => {
      let minutes = 0;
      while (!lifetime.takeTrial()) {
        advance(MINUTE_MS);
        minutes += 1;
      }
      lifetime.trialRefused();
      return minutes;
    });
    expect(waits).toEqual([1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024, 1_440]);
    expect([lifetime.ms, lifetime.trialAge(silent)]).toEqual([2_000, 2_100]);
  });

  test('is forgotten, made longer or shorter as others find', () => {
    const { lifetime } = scene();
    const lives = [2_000, 5_000, undefined, 400].map((ms) => {
      lifetime.adopt(ms);
      return lifetime.ms;
    });
    expect(lives).toEqual([2_000, 5_000, undefined, undefined]);
  });

  test('does not speak against the expiry that a nonce carries once it was outlived', () => {
    const { lifetime } = scene();
    lifetime.refused(2_000, says10s);
    lifetime.accepted(2_500, says10s);
    lifetime.refused(10_400, says10s);
    expect(lifetime.of(says10s)).toBe(10_000);
  });
});
