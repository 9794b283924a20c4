import { setTimeout as delay, setImmediate as nextTurn } from 'node:timers/promises';

/** A call to the store ends within 100 ms; what it takes beyond its own timer is little. */
const LIMIT_MS = 150;

/**
 * The outcome of a call, or `late`. Timers end in the order of their times even where the machine stood still
 * for longer, and a call is given up one turn after its timer, so that a busy machine makes no call late.
 */
export function inTime<T>(call: Promise<T>): Promise<T | 'late'> {
  const late = async (): Promise<'late'> => {
    await delay(LIMIT_MS, undefined, { ref: false });
    for (let turns = 0; turns < 3; turns += 1) await nextTurn();
    return 'late';
  };
  return Promise.race([call, late()]);
}
