import { putBounded } from '../base/bounded-map.ts';
import type { GatewayError } from '../base/errors.ts';

/** Distinct pairs of client and code that are kept. */
const KEPT = 10_000;
/** Length of a reason, in characters. */
const LONGEST_DETAIL = 500;

/** All refusals of one code for one client. */
export interface ClientRefusal {
  readonly code: string;
  readonly title: string;
  readonly count: number;
  /** The last one; in Unix milliseconds. */
  readonly lastAt: number;
  readonly deployment: string;
  readonly detail: string;
  readonly requestId: string;
}

export type CountedRefusal = readonly [client: string, refusal: ClientRefusal];

/** Requests that the gateway refused, by client and code, in memory that does not grow. */
export class ClientRefusals {
  /** The pair that was counted last is the last one. */
  readonly #byPair = new Map<string, CountedRefusal>();

  /** `client`: its id; empty: it is not known. */
  add(client: string, deployment: string, { code, kind, detail }: GatewayError, requestId: string): void {
    const pair = `${client} ${code}`;
    const count = (this.#byPair.get(pair)?.[1].count ?? 0) + 1;
    const refusal = {
      code,
      title: kind.title,
      count,
      lastAt: Date.now(),
      deployment,
      detail: detail.slice(0, LONGEST_DETAIL),
      requestId,
    };
    putBounded(this.#byPair, pair, [client, refusal], KEPT);
  }

  /** Adds those that another process has counted before it ended. */
  keep(counted: readonly CountedRefusal[]): void {
    for (const [client, refusal] of counted) {
      const pair = `${client} ${refusal.code}`;
      const known = this.#byPair.get(pair)?.[1];
      const last = known === undefined || known.lastAt < refusal.lastAt ? refusal : known;
      const count = refusal.count + (known?.count ?? 0);
      putBounded(this.#byPair, pair, [client, { ...last, count }], KEPT);
    }
  }

  /** All of them, the pair that was counted last at the end. */
  get all(): CountedRefusal[] {
    return [...this.#byPair.values()];
  }

  /** The refusals of a client, the latest first. */
  of(client: string): ClientRefusal[] {
    return this.all.flatMap(([its, refusal]) => (its === client ? [refusal] : [])).reverse();
  }
}
