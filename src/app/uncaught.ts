import type { Clock } from '../base/clock.ts';
import type { Log } from '../base/log.ts';
import { LogThrottle } from '../base/log-throttle.ts';
import { describeError } from '../base/report-error.ts';
import type { Metrics } from '../metrics/metrics.ts';

/** Distinct errors whose log lines are throttled. */
const MAX_THROTTLED = 50;

/**
 * Creates the handler of errors that reach no caller. It counts each error and logs it with its stack,
 * equal ones at most once per interval. It never throws, because nothing would catch its errors.
 */
export function uncaughtErrors(log: Log, clock: Clock, metrics: Metrics): (error: unknown) => void {
  const throttle = new LogThrottle(clock, MAX_THROTTLED);
  return (error) => {
    try {
      metrics.internalErrors.inc();
      const cause = describeError(error);
      const suppressed = throttle.admit(cause);
      if (suppressed !== undefined) log.error({ suppressed, cause }, 'internal error; the gateway continues');
    } catch {
      // An error here would end the process.
    }
  };
}
