/** The longest delay of Node's timers, in milliseconds; a longer one fires at once. */
export const LONGEST_TIMER_MS = 2 ** 31 - 1;

/** Limits a delay to the range of Node's timers, in milliseconds; NaN becomes the longest delay. */
export function timerDelay(ms: number): number {
  return Number.isNaN(ms) ? LONGEST_TIMER_MS : Math.min(Math.max(0, ms), LONGEST_TIMER_MS);
}
