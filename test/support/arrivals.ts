/** Outcomes of the requests of a load. */
export interface ArrivalsReport {
  readonly requests: number;
  /** Requests by what their client saw, such as `200`. */
  readonly outcomes: Record<string, number>;
  readonly seconds: number;
  readonly slowestMs: number;
  readonly medianMs: number;
}

export interface Arrivals {
  /** Requests that have their answer. */
  readonly answered: number;
  /** Sends no more; resolves when every request has its answer. */
  stop(): Promise<ArrivalsReport>;
}

const TICK_MS = 5;
/** A machine that is too slow for the rate is not to be taken for a gateway that fails. */
const UNDER_WAY_AT_MOST = 30;

/**
 * Sends so many requests a second, whether the ones before have their answer or not; fewer while `underWayAtMost` have
 * none.
 */
export function startArrivals(
  perSecond: number,
  send: () => Promise<number>,
  underWayAtMost = UNDER_WAY_AT_MOST,
): Arrivals {
  const begun = performance.now();
  const under: Promise<void>[] = [];
  const outcomes: Record<string, number> = {};
  let answered = 0;
  const times: number[] = [];
  const one = async (): Promise<void> => {
    const sent = performance.now();
    const outcome = await send().catch((error: unknown) => String(error));
    outcomes[outcome] = (outcomes[outcome] ?? 0) + 1;
    answered += 1;
    times.push(performance.now() - sent);
  };
  const timer = setInterval(() => {
    const due = ((performance.now() - begun) / 1000) * perSecond;
    while (under.length < due && under.length - answered < underWayAtMost) under.push(one());
  }, TICK_MS);
  return {
    get answered() {
      return answered;
    },
    async stop() {
      clearInterval(timer);
      await Promise.all(under);
      const seconds = (performance.now() - begun) / 1000;
      times.sort((a, b) => a - b);
      const [slowestMs = 0, medianMs = 0] = [times.at(-1), times[times.length >> 1]];
      return { requests: under.length, outcomes, seconds, slowestMs, medianMs };
    },
  };
}
