import type { Clock } from '../base/clock.ts';
import { RollingCount } from '../base/rolling-count.ts';
import type { Retries } from '../handshake/attempt-budget.ts';
import type { RetryReason } from '../metrics/deployment-metrics.ts';
import type { Series } from '../metrics/series.ts';

const WINDOW_MS = 10_000;
/** Retries in the window that are allowed however few requests there are: 3 per second. */
const LEAST = 30;

export interface RetryOptions {
  /** The most retries of one request. */
  readonly attempts: number;
  /** The most retries of all requests of the last 10 s, as a share of these. */
  readonly budget: number;
}

/** Bounds the retries of all requests to one upstream, so that they do not multiply the load of one that fails. */
export class RetryBudget implements Retries {
  readonly attempts: number;
  readonly #share: number;
  readonly #clock: Clock;
  readonly #series: Readonly<Record<RetryReason | 'denied', Series>>;
  readonly #requests = new RollingCount(WINDOW_MS);
  readonly #retries = new RollingCount(WINDOW_MS);

  constructor(
    { attempts, budget }: RetryOptions,
    clock: Clock,
    series: Readonly<Record<RetryReason | 'denied', Series>>,
  ) {
    this.attempts = attempts;
    this.#share = budget;
    this.#clock = clock;
    this.#series = series;
  }

  /** A client request begins. */
  onRequest(now: number): void {
    this.#requests.add(now);
  }

  take(reason: RetryReason): boolean {
    const now = this.#clock.now();
    if (this.#retries.sum(now) >= Math.max(LEAST, this.#requests.sum(now) * this.#share)) {
      this.#series.denied.inc();
      return false;
    }
    this.#retries.add(now);
    this.count(reason);
    return true;
  }

  count(reason: RetryReason): void {
    this.#series[reason].inc();
  }
}
