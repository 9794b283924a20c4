import type { Clock } from '../base/clock.ts';
import type { Log } from '../base/log.ts';
import { describeError } from '../base/report-error.ts';
import type { Metrics } from '../metrics/metrics.ts';

/** Between two lines about the same error, in milliseconds. */
const QUIET_MS = 10_000;
/** Different errors that are told apart. */
const REMEMBERED = 50;

/**
 * What receives the errors that reach no caller: counts each, and logs it with its stack, the same one at most once per
 * interval. It never throws, since nothing is left that would catch it.
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
