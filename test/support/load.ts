import { setTimeout as delay } from 'node:timers/promises';
import { Pool } from 'undici';
import type { RunningGateway } from './gateway.ts';
import { watchStandstill } from './measure.ts';
import { authors } from './simulator.ts';

/** Clients of each gateway. */
export const CLIENTS = 2;
/** Milliseconds until a client that has its answer asks again. */
const PAUSE_MS = 20;

export interface LoadSeen {
  readonly answers: number;
  /** Status and content of every answer that is not 200. */
  readonly failures: readonly string[];
  /** Time of the slowest response in milliseconds, without times in which this process stood still. */
  readonly slowestMs: number;
}

export interface SteadyLoad {
  /** Resolves when the last answer is there, and rejects if one never came; can be called again. */
  end(): Promise<LoadSeen>;
}

/** Plain clients that ask the gateways at these origins all the time. */
export function startLoad(origins: readonly string[]): SteadyLoad {
  const stood = watchStandstill();
  const pools = origins.map((origin) => new Pool(origin));
  const failures: string[] = [];
  let answers = 0;
  let slowestMs = 0;
  let going = true;
  const client = async (pool: Pool): Promise<void> => {
    while (going) {
      const [begun, stoodBefore] = [performance.now(), stood.ms()];
      const { statusCode, body } = await pool.request({ path: authors, method: 'GET' });
      const content = await body.text();
      slowestMs = Math.max(slowestMs, performance.now() - begun - (stood.ms() - stoodBefore));
      if (statusCode !== 200) failures.push(`${statusCode} ${content}`);
      answers += 1;
      await delay(PAUSE_MS);
    }
  };
  const clients = Promise.all(pools.flatMap((pool) => Array.from({ length: CLIENTS }, () => client(pool))));
  const over = clients.finally(async () => {
    stood.end();
    await Promise.all(pools.map((pool) => pool.close()));
  });
  // The error reaches the caller that awaits the end.
  over.catch(() => undefined);
  return {
    async end() {
      going = false;
      await over;
      return { answers, failures, slowestMs };
    },
  };
}

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

export interface HealthSeen {
  readonly polls: number;
  /** Content of `/readyz` each time that it was not 200. */
  readonly unready: readonly string[];
}

/** Asks for `/readyz` as a balancer with quick checks does, until it is stopped. */
export function watchHealth({ control }: Pick<RunningGateway, 'control'>, everyMs = 20) {
  const unready: string[] = [];
  let polls = 0;
  let going = true;
  const polling = (async () => {
    while (going) {
      const answer = await fetch(`${control}/readyz`);
      const text = await answer.text();
      polls += 1;
      if (answer.status !== 200) unready.push(text);
      await delay(everyMs);
    }
  })();
  return {
    async stop(): Promise<HealthSeen> {
      going = false;
      await polling;
      return { polls, unready };
    },
  };
}
