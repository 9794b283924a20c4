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

/** Requests that the gateway refused, by client and code, in memory that does not grow. */
export class ClientRefusals {
  /** The pair that was counted last is the last one. */
  readonly #byPair = new Map<string, ClientRefusal>();

  /** `client`: its id; empty: it is not known. */
  add(client: string, deployment: string, { code, kind, detail }: GatewayError, requestId: string): void {
    const pair = `${client} ${code}`;
    const count = (this.#byPair.get(pair)?.count ?? 0) + 1;
    const refusal = {
      code,
      title: kind.title,
      count,
      lastAt: Date.now(),
      deployment,
      detail: detail.slice(0, LONGEST_DETAIL),
      requestId,
    };
    putBounded(this.#byPair, pair, refusal, KEPT);
  }

  /** The refusals of a client, the latest first. */
  of(client: string): ClientRefusal[] {
    const start = `${client} `;
    return [...this.#byPair]
      .flatMap(([pair, refusal]) => (pair.startsWith(start) ? [refusal] : []))
      .reverse();
  }
}
