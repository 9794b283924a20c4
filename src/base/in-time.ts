import { setTimeout as delay } from 'node:timers/promises';
import { ignoreAbort } from './expected-errors.ts';

/** Waits for work, but for `ms` milliseconds at most. @throws the error of the work, if it comes in time */
export async function inTime(work: Promise<unknown> | undefined, ms: number): Promise<void> {
  if (work === undefined) return;
  const ended = new AbortController();
  const late = delay(ms, undefined, { signal: ended.signal }).catch(ignoreAbort);
  await Promise.race([work, late]).finally(() => ended.abort());
}
