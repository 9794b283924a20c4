import type { Clock } from '../base/clock.ts';
import type { Log } from '../base/log.ts';
import { describeError } from '../base/report-error.ts';
import type { Metrics } from '../metrics/metrics.ts';

/** Time between two log lines about the same error, in milliseconds. */
const QUIET_MS = 10_000;
/** Number of distinct errors that are remembered. */
const REMEMBERED = 50;

/**
 * Creates the handler of errors that reach no caller. It counts each error and logs it with its stack,
 * equal ones at most once per interval. It never throws, because nothing would catch its errors.
 */
export function uncaughtErrors(log: Log, clock: Clock, metrics: Metrics): (error: unknown) => void {
  const told = new Map<string, { at: number; suppressed: number }>();
  return (error) => {
    try {
      metrics.internalErrors.inc();
      const cause = describeError(error);
      const last = told.get(cause);
      const now = clock.now();
      if (last !== undefined && now - last.at < QUIET_MS) {
        last.suppressed += 1;
        return;
      }
      if (told.size >= REMEMBERED) told.clear();
      told.set(cause, { at: now, suppressed: 0 });
      log.error({ suppressed: last?.suppressed ?? 0, cause }, 'internal error; the gateway continues');
    } catch {
      // An error here would end the process.
    }
  };
}
