import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { watchPace } from '../../src/gateway/pace.ts';

const IDLE_MS = 1_000;
const RATE = 1_000;

beforeEach(() => void jest.useFakeTimers());
afterEach(() => void jest.useRealTimers());

/** Moves `step` bytes every `everyMs`; returns when the client counted as slow, and why; undefined: never. */
function watch(minRate: number, step: number, everyMs: number, waits = (_at: number): boolean => true) {
  let bytes = 0;
  let at = 0;
  let found: { at: number; stalled: boolean } | undefined;
  const stop = watchPace(
    { idleMs: IDLE_MS, minRate },
    () => (waits(at) ? bytes : undefined),
    (stalled) => {
      expect(found).toBeUndefined();
      found = { at, stalled };
    },
  );
  for (; at < 100 * IDLE_MS; at += 1) {
    if (at % everyMs === everyMs - 1) bytes += step;
    jest.advanceTimersByTime(1);
  }
  stop();
  expect(jest.getTimerCount()).toBe(0);
  return found;
}

describe('a client', () => {
  test.each([20, 50, 250, 333, 700, 990])(
    'just above the rate, in steps every %i ms, is not slow',
    (every) => {
      expect(watch(RATE, Math.ceil(every * 1.05), every)).toBeUndefined();
    },
  );

  test.each([20, 50, 250, 333, 700, 990])('below the rate, in steps every %i ms, is slow', (every) => {
    expect(watch(RATE, Math.floor(every * 0.9), every)).toMatchObject({ stalled: false });
  });

  test('with a trickle of bytes is slow after idleMs, and no more than a quarter later', () => {
    const found = watch(RATE, 1, 100);
    expect(found).toMatchObject({ stalled: false });
    expect(found?.at).toBeGreaterThanOrEqual(IDLE_MS - 1);
    expect(found?.at).toBeLessThanOrEqual(IDLE_MS * 1.25);
  });

  test('saves up no more than idleMs with bytes that it sent before', () => {
    let bytes = 0;
    let isSlow = false;
    watchPace(
      { idleMs: IDLE_MS, minRate: RATE },
      () => bytes,
      () => {
        isSlow = true;
      },
    );
    bytes += 1_000 * RATE;
    for (let check = 0; check < 5; check += 1) {
      bytes += 1;
      expect(isSlow).toBe(false);
      jest.advanceTimersByTime(IDLE_MS / 4);
    }
    jest.advanceTimersByTime(IDLE_MS / 4);
    expect(isSlow).toBe(true);
  });

  test('without a byte has stalled, with any rate', () => {
    const expected = { at: IDLE_MS - 1, stalled: true };
    expect([watch(0, 0, 1), watch(RATE, 0, 1)]).toEqual([expected, expected]);
  });

  test('is not slow at any rate if none is wanted', () => {
    expect(watch(0, 1, 990)).toBeUndefined();
  });

  test('is not slow while it is not waited for', () => {
    expect(watch(RATE, 1, 10, () => false)).toBeUndefined();
    // The time before does not count as a pause.
    expect(watch(RATE, 2_000, 1_900, (at) => at % 1_900 >= 1_200)).toBeUndefined();
  });
});
