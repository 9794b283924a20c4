import type { LimitSettings } from '../../src/limits/store.ts';

export const REFUSED_WINDOW_MS = 60_000;

/** True if the last of these times, and those within a minute before, are more than allowed. */
export function refusedTooOften(times: readonly number[], allowed: number): boolean {
  const first = times.at(-1 - allowed);
  const last = times.at(-1);
  return first !== undefined && last !== undefined && last - first < REFUSED_WINDOW_MS;
}

/** The most requests beyond the bucket in some span of time; 0 or less: its bound was kept. */
export function excessOf(times: readonly number[], { rate }: LimitSettings, bursts = 1): number {
  if (rate === undefined) return 0;
  let most = Number.NEGATIVE_INFINITY;
  // The level of a bucket that may be filled `bursts` times over, and that each request lowers.
  let level = bursts * rate.burst;
  let before = times[0] ?? 0;
  for (const time of times) {
    level = Math.min(bursts * rate.burst, level + ((time - before) / 1000) * rate.perSecond) - 1;
    before = time;
    most = Math.max(most, -level);
  }
  return most;
}
