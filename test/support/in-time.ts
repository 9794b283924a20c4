import { setTimeout as delay } from 'node:timers/promises';

/** A call to the store ends within 100 ms; what it takes beyond its own timer is little. */
const LIMIT_MS = 150;

/**
 * The outcome of a call, or `late`. Timers end in the order of their times even where the machine stood still
 * for longer, so that a busy one makes no call late.
 */
export function inTime<T>(call: Promise<T>): Promise<T | 'late'> {
  return Promise.race([call, delay(LIMIT_MS, 'late' as const, { ref: false })]);
}
