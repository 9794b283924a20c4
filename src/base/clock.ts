import { setTimeout as delay } from 'node:timers/promises';
import { ignoreAbort } from './expected-errors.ts';

/** A monotonic clock in milliseconds; only differences are meaningful. */
export interface Clock {
  now(): number;
}

export const monotonicClock: Clock = performance;

/**
 * Measures milliseconds from now on. An age that is sent to or received from another process includes the time of the
 * call, so that it is rather too high than too low.
 */
export function stopwatch(): () => number {
  const start = performance.now();
  return () => performance.now() - start;
}

/** The longest delay of Node's timers, in milliseconds; a longer one fires at once. */
export const LONGEST_TIMER_MS = 2 ** 31 - 1;

/** Limits a delay to the range of Node's timers, in milliseconds; NaN becomes the longest delay. */
export function timerDelay(ms: number): number {
  return Number.isNaN(ms) ? LONGEST_TIMER_MS : Math.min(Math.max(0, ms), LONGEST_TIMER_MS);
}

/** Waits for work, but for `ms` milliseconds at most. @throws the error of the work, if it comes in time */
export async function inTime(work: Promise<unknown> | undefined, ms: number): Promise<void> {
  if (work === undefined) return;
  const ended = new AbortController();
  const late = delay(ms, undefined, { signal: ended.signal }).catch(ignoreAbort);
  await Promise.race([work, late]).finally(() => ended.abort());
}
