import { isNativeError } from 'node:util/types';
import type { Clock } from '../base/clock.ts';
import type { GatewayError } from '../base/errors.ts';
import type { Log } from '../base/log.ts';

/** Between two lines about the same failure of the same deployment, in milliseconds. */
const QUIET_MS = 10_000;

/**
 * Says which failures an operator can do something about, and to who debugs what clients did wrong. Each at most once per interval: an upstream
 * that is down must not fill the log.
 */
export class FaultLog {
  readonly #log: Log;
  readonly #clock: Clock;
  readonly #told = new Map<string, { at: number; suppressed: number }>();

  constructor(log: Log, clock: Clock) {
    this.#log = log;
    this.#clock = clock;
  }

  add(deployment: string, error: GatewayError, requestId: string): void {
    if (error.code === 'internal-error') {
      this.#log.error({ deployment, requestId, cause: stackOf(error.cause) }, error.detail);
      return;
    }
    if (error.kind.status <= 500) {
      const { code, detail } = error;
      this.#log.debug({ deployment, code, requestId }, detail);
      return;
    }
    const key = `${deployment} ${error.code}`;
    const now = this.#clock.now();
    const last = this.#told.get(key);
    if (last !== undefined && now - last.at < QUIET_MS) {
      last.suppressed += 1;
      return;
    }
    this.#told.set(key, { at: now, suppressed: 0 });
    const { code, detail, cause } = error;
    const suppressed = last?.suppressed ?? 0;
    this.#log.warn({ deployment, code, requestId, suppressed, cause: causeText(cause) }, detail);
  }
}

function stackOf(cause: unknown): string {
  return isNativeError(cause) ? (cause.stack ?? cause.message) : String(cause);
}

/** Code and message only: other properties of an error can hold parts of an answer. */
function causeText(cause: unknown): string | undefined {
  if (!isNativeError(cause)) return undefined;
  const code = 'code' in cause && typeof cause.code === 'string' ? `${cause.code}: ` : '';
  return `${code}${cause.message}`;
}
