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

describe('at its bounds', () => {
  test('an age of half a second is a life, a shorter one is none', () => {
    const lifetime = new Lifetime(() => 0);
    lifetime.refused(499, silent);
    expect(lifetime.ms).toBeUndefined();
    lifetime.refused(500, silent);
    expect(lifetime.ms).toBe(500);
  });

  test('a life is at most 30 days, also one that another process tells', () => {
    const days = 24 * 60 * 60_000;
    const lifetime = new Lifetime(() => 0);
    lifetime.refused(31 * days, silent);
    expect(lifetime.ms).toBe(30 * days);
    const adopting = new Lifetime(() => 0);
    const adopted = [499, 30 * days + 1, 500, 30 * days].map((ms) => {
      adopting.adopt(ms);
      return adopting.ms;
    });
    expect(adopted).toEqual([undefined, undefined, 500, 30 * days]);
  });

  test('a life that another process tells counts only if no older nonce was accepted here', () => {
    const lifetime = new Lifetime(() => 0);
    lifetime.accepted(5_000, silent);
    lifetime.adopt(5_000);
    expect([lifetime.ms, lifetime.oldestAcceptedMs]).toEqual([undefined, 5_000]);
    lifetime.adopt(5_001);
    expect(lifetime.ms).toBe(5_001);
  });

  test('a nonce is to be renewed after more than 70 % of its life, and tried at 105 %', () => {
    const lifetime = new Lifetime(() => 0);
    expect([lifetime.isAging(1e9, silent), lifetime.trialAge(silent)]).toEqual([
      false,
      Number.POSITIVE_INFINITY,
    ]);
    lifetime.refused(10_000, silent);
    expect([7_000, 7_001].map((age) => lifetime.isAging(age, silent))).toEqual([false, true]);
    expect(lifetime.trialAge(silent)).toBe(10_500);
  });

  test('three refusals that come too early are needed in a row', () => {
    const lifetime = new Lifetime(() => 0);
    lifetime.accepted(9_000, silent);
    for (const age of [1_000, 1_000]) lifetime.refused(age, silent);
    lifetime.accepted(9_001, silent);
    for (const age of [1_000, 1_000]) lifetime.refused(age, silent);
    // An accepted nonce that is no older says nothing new.
    lifetime.accepted(9_001, silent);
    expect(lifetime.ms).toBeUndefined();
    lifetime.refused(1_000, silent);
    expect([lifetime.ms, lifetime.oldestAcceptedMs]).toEqual([1_000, 0]);
  });

  test('an expiry that a nonce carries may be off by a second, and a quarter of the time', () => {
    const counts = (...events: (readonly ['accepted' | 'refused', number])[]): boolean => {
      const lifetime = new Lifetime(() => 0);
      for (const [event, age] of events) lifetime[event](age, says10s);
      return lifetime.of(says10s) === 10_000;
    };
    expect(counts(['refused', 9_000])).toBe(true);
    expect(counts(['refused', 8_999])).toBe(false);
    expect(counts(['refused', 13_499])).toBe(true);
    expect(counts(['refused', 13_500])).toBe(false);
    expect(counts(['accepted', 11_000], ['refused', 11_001])).toBe(true);
    expect(counts(['accepted', 11_001], ['refused', 11_002])).toBe(false);
  });

  test('an age at which nonces were accepted and refused is where they end', () => {
    const accepted = new Lifetime(() => 0);
    accepted.accepted(9_000, silent);
    accepted.refused(9_000, silent);
    expect(accepted.ms).toBe(9_000);
    const refused = new Lifetime(() => 0);
    refused.refused(9_000, silent);
    refused.accepted(9_000, silent);
    expect(refused.ms).toBe(9_000);
  });

  test.each([
    ['later than it says, by less than a second', [10_100, 10_500], says10s, 10_000],
    ['when it says', [9_500, 10_000], says10s, undefined],
    ['before it says', [9_100, 9_200], says10s, undefined],
    ['that carries none', [10_100, 10_500], silent, undefined],
  ] as const)('a proven expiry after a nonce is accepted %s', (_, [refused, accepted], nonce, expected) => {
    const lifetime = new Lifetime(() => 0);
    lifetime.refused(refused, says10s);
    expect(lifetime.of(says10s)).toBe(10_000);
    lifetime.accepted(accepted, nonce);
    expect(lifetime.of(says10s)).toBe(expected);
  });

  test('an expiry that was outlived does not count, whatever nonces without one do', () => {
    const lifetime = new Lifetime(() => 0);
    lifetime.accepted(11_001, says10s);
    lifetime.accepted(12_000, silent);
    lifetime.refused(12_100, says10s);
    expect(lifetime.of(says10s)).toBe(12_100);
  });

  test('a nonce that carries no expiry says nothing against those that do', () => {
    const lifetime = new Lifetime(() => 0);
    lifetime.refused(10_000, says10s);
    lifetime.accepted(9_500, silent);
    expect(lifetime.of(says10s)).toBe(10_000);
  });
});

describe('the trial of a lifetime', () => {
  test('is not due while none is known, and begins once', () => {
    let now = 0;
    const lifetime = new Lifetime(() => now);
    now = 1e9;
    expect(lifetime.takeTrial()).toBe(false);
    lifetime.refused(10_000, silent, true);
    expect(lifetime.takeTrial()).toBe(false);
    now += 60_000;
    expect([lifetime.takeTrial(), lifetime.takeTrial()]).toEqual([true, false]);
    now += 60_000;
    expect(lifetime.takeTrial()).toBe(true);
  });

  test('is not put off by refusals that teach nothing new', () => {
    let now = 0;
    const lifetime = new Lifetime(() => now);
    lifetime.refused(10_000, silent, true);
    now = 59_999;
    lifetime.refused(10_000, silent, true);
    lifetime.refused(11_000, silent, true);
    now = 60_000;
    expect(lifetime.takeTrial()).toBe(true);
  });

  test('of a shorter life from one refusal that is not called stale is due at once', () => {
    const lifetime = new Lifetime(() => 0);
    lifetime.refused(10_000, silent, true);
    lifetime.refused(8_000, silent);
    expect([lifetime.takeTrial(), lifetime.takeTrial()]).toEqual([true, false]);
  });

  test('is still due at once when another process tells the same', () => {
    const lifetime = new Lifetime(() => 0);
    lifetime.refused(10_000, silent);
    lifetime.adopt(10_000);
    expect(lifetime.takeTrial()).toBe(true);
  });

  test.each<[string, (lifetime: Lifetime) => void]>([
    ['was outlived', (lifetime) => lifetime.accepted(10_001, silent)],
    ['another process found wrong', (lifetime) => lifetime.adopt(undefined)],
  ])('of a lesson that %s says nothing of when the next one is tried', (_, end) => {
    let now = 0;
    const lifetime = new Lifetime(() => now);
    lifetime.refused(10_000, silent, true);
    now = 10_000;
    end(lifetime);
    now = 30_000;
    lifetime.adopt(20_000);
    now = 89_999;
    expect(lifetime.takeTrial()).toBe(false);
    now = 90_000;
    expect(lifetime.takeTrial()).toBe(true);
  });

  test('of a lesson of another process is due a minute later, not at once', () => {
    let now = 0;
    const lifetime = new Lifetime(() => now);
    lifetime.adopt(10_000);
    expect(lifetime.takeTrial()).toBe(false);
    now = 59_999;
    lifetime.adopt(10_000);
    now = 60_000;
    expect(lifetime.takeTrial()).toBe(true);
  });

  test('is not due for another upstream, of which nothing is known', () => {
    let now = 0;
    const lifetime = new Lifetime(() => now);
    lifetime.accepted(20_000, silent);
    for (let count = 0; count < 3; count += 1) lifetime.refused(10_000, says10s, true);
    lifetime.forget();
    expect([lifetime.ms, lifetime.oldestAcceptedMs, lifetime.of(says10s)]).toEqual([undefined, 0, undefined]);
    lifetime.refused(10_400, says10s, true);
    expect(lifetime.of(says10s)).toBe(10_000);
    lifetime.forget();
    now = 60_000;
    lifetime.adopt(9_000);
    expect(lifetime.takeTrial()).toBe(false);
    lifetime.refused(8_000, silent, true);
    now = 119_999;
    expect(lifetime.takeTrial()).toBe(false);
    now = 120_000;
    expect(lifetime.takeTrial()).toBe(true);
  });
});
