/** A monotonic clock in milliseconds; only differences are meaningful. */
export interface Clock {
  now(): number;
}

export const monotonicClock: Clock = { now: () => performance.now() };

/**
 * Measures milliseconds from now on. An age that is sent to or received from another process includes the time of the
 * call, so that it is rather too high than too low.
 */
export function stopwatch(): () => number {
  const start = performance.now();
  return () => performance.now() - start;
}
