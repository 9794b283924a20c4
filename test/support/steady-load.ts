import { setTimeout as delay } from 'node:timers/promises';
import { Pool } from 'undici';
import { authors } from './simulator.ts';
import { watchStandstill } from './standstill.ts';

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
