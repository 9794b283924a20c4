import { setTimeout as delay, setImmediate as nextTurn } from 'node:timers/promises';

/** `timeoutMs` of stores whose calls are to end in time: short for a test, long enough for a reply on a busy machine. */
export const CALL_MS = 500;
/** A call ends little later than its own timer. */
const LIMIT_MS = CALL_MS + 50;

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
