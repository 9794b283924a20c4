import { describe, expect, test } from '@jest/globals';
import { AdaptiveLimit, type LatencySample } from '../../src/transport/adaptive-limit.ts';

const MAX = 64;

interface Exchange {
  readonly sample: LatencySample | undefined;
  readonly endsAt: number;
}

/** An adaptive limit before an upstream, in a time that passes without waiting. */
function scene() {
  const clock = { ms: 0, now: () => clock.ms };
  const limit = new AdaptiveLimit(MAX, clock);
  let running: Exchange[] = [];
  const limits: number[] = [];
  return {
    limit,
    /** The limit after each exchange that ended. */
    limits,
    /** Keeps as many exchanges under way as there may be, `demand` at most, for a time in milliseconds. */
    run(ms: number, latency: (running: number) => number, demand = 1000): void {
      for (const end = clock.ms + ms; clock.ms < end; ) {
        while (running.length < Math.min(limit.value, demand)) {
          const sample = limit.measure(running.length + 1);
          sample?.start();
          running.push({ sample, endsAt: clock.ms + latency(running.length + 1) });
        }
        const next = Math.min(...running.map(({ endsAt }) => endsAt));
        clock.ms = next;
        for (const { sample } of running.filter(({ endsAt }) => endsAt <= next)) {
          sample?.end();
          limits.push(limit.value);
        }
        running = running.filter(({ endsAt }) => endsAt > next);
      }
    },
  };
}

/** As slow as the requests above this number make it. */
const withCapacity = (capacity: number) => (running: number) => 40 * Math.max(1, running / capacity);
/** One after the other, so that a run has the same result each time. */
function alternating(...latencies: number[]): () => number {
  let calls = 0;
  return () => latencies[calls++ % latencies.length] ?? 0;
}

describe('an adaptive limit', () => {
  test('reaches the highest value within seconds while the upstream is fast, and stays there', () => {
    const { limit, limits, run } = scene();
    expect([limit.value, limit.expected]).toEqual([4, MAX]);
    run(3_000, () => 40);
    expect(limit.value).toBe(MAX);
    limits.length = 0;
    run(60_000, () => 40);
    expect(new Set(limits)).toEqual(new Set([MAX]));
  });

  test.each([4, 8, 16])('stays near the capacity of an upstream, here %i', (capacity) => {
    const { limit, limits, run } = scene();
    run(20_000, withCapacity(capacity));
    limits.length = 0;
    run(60_000, withCapacity(capacity));
    expect(Math.min(...limits)).toBeGreaterThanOrEqual(capacity);
    expect(Math.max(...limits)).toBeLessThanOrEqual(4 * capacity);
    expect(limit.expected).toBe(limit.value);
  });

  test('falls when the capacity does, and comes back with it', () => {
    const { limit, run } = scene();
    run(10_000, () => 40);
    run(20_000, withCapacity(8));
    expect(limit.value).toBeLessThanOrEqual(32);
    run(20_000, () => 40);
    expect(limit.value).toBe(MAX);
  });

  test('is not lowered by operations that take longer than others', () => {
    const { limits, run } = scene();
    run(10_000, alternating(20, 300));
    limits.length = 0;
    run(60_000, alternating(20, 300, 300, 20, 20));
    expect(Math.min(...limits)).toBe(MAX);
  });

  test('is restored if responses do not become faster: all take longer now, however many there are', () => {
    const { limit, limits, run } = scene();
    run(10_000, () => 40);
    limits.length = 0;
    run(20_000, () => 400);
    expect(Math.min(...limits)).toBeLessThan(MAX);
    expect(limit.value).toBe(MAX);
    const lowered = limits.filter((value) => value < MAX).length;
    expect(lowered / limits.length).toBeLessThan(0.2);
  });

  test('is not raised while it is not used', () => {
    const { limit, run } = scene();
    run(60_000, () => 40, 2);
    expect(limit.value).toBeLessThanOrEqual(4);
  });

  test('waits for exchanges without a response, and does not learn from them', () => {
    const { limit } = scene();
    const before = limit.value;
    for (let count = 0; count < 1000; count += 1) limit.measure(4)?.drop();
    expect(limit.value).toBe(before);
  });
});
