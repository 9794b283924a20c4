/** Node fires a timer of more milliseconds than that at once instead of late. */
export const LONGEST_TIMER_MS = 2 ** 31 - 1;

/** A delay that Node's timers take as it is meant, in milliseconds: what is no number is the longest there is. */
export function timerDelay(ms: number): number {
  return Number.isNaN(ms) ? LONGEST_TIMER_MS : Math.min(Math.max(0, ms), LONGEST_TIMER_MS);
}
