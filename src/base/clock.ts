/** Milliseconds on a clock that never goes back; only differences mean anything. */
export interface Clock {
  now(): number;
}

export const monotonicClock: Clock = { now: () => performance.now() };
