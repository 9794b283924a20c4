/** A monotonic clock in milliseconds; only differences are meaningful. */
export interface Clock {
  now(): number;
}

export const monotonicClock: Clock = { now: () => performance.now() };
