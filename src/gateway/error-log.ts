import { isNativeError } from 'node:util/types';
import type { Clock } from '../base/clock.ts';
import type { GatewayError } from '../base/errors.ts';
import type { Log } from '../base/log.ts';
import { putBounded } from '../base/maps.ts';
import { describeError } from '../base/report-error.ts';
import { Throttle } from '../base/throttle.ts';

/** Distinct failures, and refusals, for the console. */
const MAX_RECENT = 50;
/** Errors of deployments that are counted, and throttled: enough for 1,000 deployments that fail in a few ways each. */
const MAX_KINDS = 4_096;

/** All errors of one code at one deployment. */
export interface RecentError {
  /** Empty if the error belongs to no deployment. */
  readonly deployment: string;
  readonly code: string;
  readonly title: string;
  /** Says what happened and what to do. */
  readonly detail: string;
  readonly count: number;
  /** Time of the latest one, on the clock, in milliseconds. */
  readonly at: number;
  readonly requestId: string;
}

/**
 * Logs errors: internal errors at level error, those of the upstream, the audit log and overload (502 and above) as
 * warnings, those of clients at debug. Warnings of one code at one deployment, and equal internal errors, are throttled.
 * Keeps the latest errors, and counts those that others have displaced from them.
 */
export class ErrorLog {
  readonly #log: Log;
  readonly #clock: Clock;
  /** By deployment and code, the newest last. Refusals, which a client causes, displace no failures. */
  readonly #failures = new Map<string, RecentError>();
  readonly #refusals = new Map<string, RecentError>();
  readonly #throttle: Throttle;

  constructor(log: Log, clock: Clock) {
    this.#log = log;
    this.#clock = clock;
    this.#throttle = new Throttle(clock, MAX_KINDS);
  }

  /** The recent failures, then the recent refusals, the newest first. */
  get recent(): readonly RecentError[] {
    return [this.#failures, this.#refusals].flatMap((kinds) =>
      [...kinds.values()].slice(-MAX_RECENT).reverse(),
    );
  }

  add(deployment: string, error: GatewayError, requestId: string): void {
    this.#remember(deployment, error, requestId);
    if (error.code === 'internal-error') {
      this.#addInternal(deployment, error, requestId);
      return;
    }
    if (error.kind.status < 502) {
      const { code, detail } = error;
      this.#log.debug({ deployment, code, requestId }, detail);
      return;
    }
    const suppressed = this.#throttle.admit(`${deployment} ${error.code}`);
    if (suppressed === undefined) return;
    const { code, detail, cause } = error;
    this.#log.warn({ deployment, code, requestId, suppressed, cause: causeText(cause) }, detail);
  }

  /** Throttled by its stack: a client that uses up all open files must not fill the log with the lack of them. */
  #addInternal(deployment: string, { cause, detail }: GatewayError, requestId: string): void {
    const described = describeError(cause);
    const suppressed = this.#throttle.admit(`${deployment} ${described}`);
    if (suppressed !== undefined) {
      this.#log.error({ deployment, requestId, suppressed, cause: described }, detail);
    }
  }

  #remember(deployment: string, error: GatewayError, requestId: string): void {
    if (error.code === 'client-closed') return;
    const key = `${deployment} ${error.code}`;
    const { code, detail, kind } = error;
    const kinds = kind.status >= 500 ? this.#failures : this.#refusals;
    const count = (kinds.get(key)?.count ?? 0) + 1;
    const at = this.#clock.now();
    const recent = { deployment, code, title: kind.title, detail, count, at, requestId };
    putBounded(kinds, key, recent, MAX_KINDS);
  }
}

/** Code and message only: other properties of an error can hold parts of a response. */
function causeText(cause: unknown): string | undefined {
  if (!isNativeError(cause)) return undefined;
  const code = 'code' in cause && typeof cause.code === 'string' ? `${cause.code}: ` : '';
  return `${code}${cause.message}`;
}

/** Distinct kinds of refusals that are kept. */
const KEPT = 10_000;
/** Length of a reason, in characters. */
const LONGEST_DETAIL = 500;

/** All refusals of one code for one client. */
export interface ClientRefusal {
  readonly code: string;
  /** True: by rules that are only observed, so the requests went on; what became of them is not known here. */
  readonly isServed: boolean;
  readonly title: string;
  readonly count: number;
  /** The last one; in Unix milliseconds. */
  readonly lastAt: number;
  readonly deployment: string;
  readonly detail: string;
  readonly requestId: string;
}

export type CountedRefusal = readonly [client: string, refusal: ClientRefusal];

/** Whose request was refused, and where. */
interface RefusedRequest extends Pick<ClientRefusal, 'deployment' | 'isServed'> {
  /** Id of the client; empty: it is not known. */
  readonly client: string;
}

/** Requests that the gateway, or a rule that is only observed, refused, in memory that does not grow. */
export class ClientRefusals {
  /** By client, code and `isServed`; what was counted last is the last one. */
  readonly #byKind = new Map<string, CountedRefusal>();

  add({ client, deployment, isServed }: RefusedRequest, error: GatewayError, requestId: string): void {
    const { code, kind, detail } = error;
    const key = keyOf(client, { code, isServed });
    const count = (this.#byKind.get(key)?.[1].count ?? 0) + 1;
    const refusal = {
      code,
      isServed,
      title: kind.title,
      count,
      lastAt: Date.now(),
      deployment,
      detail: detail.slice(0, LONGEST_DETAIL),
      requestId,
    };
    putBounded(this.#byKind, key, [client, refusal], KEPT);
  }

  /** Adds those that another process has counted before it ended. */
  keep(counted: readonly CountedRefusal[]): void {
    for (const [client, refusal] of counted) {
      const key = keyOf(client, refusal);
      const known = this.#byKind.get(key)?.[1];
      const last = known === undefined || known.lastAt < refusal.lastAt ? refusal : known;
      const count = refusal.count + (known?.count ?? 0);
      putBounded(this.#byKind, key, [client, { ...last, count }], KEPT);
    }
  }

  /** All of them, what was counted last at the end. */
  get all(): CountedRefusal[] {
    return [...this.#byKind.values()];
  }

  /** The refusals of a client, the latest first. */
  of(client: string): ClientRefusal[] {
    return this.all.flatMap(([its, refusal]) => (its === client ? [refusal] : [])).reverse();
  }
}

function keyOf(client: string, { code, isServed }: Pick<ClientRefusal, 'code' | 'isServed'>): string {
  return `${client} ${code} ${isServed}`;
}
