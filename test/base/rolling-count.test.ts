import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { RollingCount } from '../../src/base/rolling-count.ts';

describe('a rolling count', () => {
  test('counts the events of the window, and forgets them a tenth of it at a time', () => {
    const count = new RollingCount(1_000);
    for (const at of [0, 50, 99, 100, 950]) count.add(at);
    expect([count.sum(950), count.sum(999)]).toEqual([5, 5]);
    expect(count.sum(1_000)).toBe(2);
    expect(count.sum(1_100)).toBe(1);
    expect(count.sum(1_950)).toBe(0);
  });

  test('has nothing left after a pause of any length', () => {
    const count = new RollingCount(1_000);
    count.add(500);
    expect(count.sum(1e9)).toBe(0);
    count.add(1e9);
    expect(count.sum(1e9)).toBe(1);
  });

  test('forgets all at once', () => {
    const count = new RollingCount(1_000);
    count.add(500);
    count.clear();
    expect(count.sum(500)).toBe(0);
  });

  test('is never further from the true count than a tenth of the window', () => {
    const steps = fc.array(fc.integer({ min: 0, max: 400 }), { maxLength: 200 });
    fc.assert(
      fc.property(steps, (pauses) => {
        const count = new RollingCount(1_000);
        const events: number[] = [];
        let now = 0;
        for (const pause of pauses) {
          now += pause;
          count.add(now);
          events.push(now);
          const within = (ms: number): number => events.filter((at) => at > now - ms).length;
          expect(count.sum(now)).toBeGreaterThanOrEqual(within(900));
          expect(count.sum(now)).toBeLessThanOrEqual(within(1_000));
        }
      }),
    );
  });
});
