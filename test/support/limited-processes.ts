import { setTimeout as delay } from 'node:timers/promises';
import { afterEach } from '@jest/globals';
import { Pool } from 'undici';
import { startSimulator } from '../../src/simulator/simulator.ts';
import { type RedisServer, startRedis } from './redis.ts';
import { type ServedGateway, serveGateway } from './served-gateway.ts';

export interface Asked {
  readonly status: number;
  /** How long the response took, in milliseconds. */
  readonly ms: number;
  /** Requests that all processes together have left, as the RateLimit field says. */
  readonly left: number;
}

/** A gateway in a process of its own, and a client of it. */
export interface LimitedProcess extends ServedGateway {
  /** Sends one request. */
  ask(): Promise<Asked>;
}

export interface LimitedProcesses {
  readonly redis: RedisServer;
  readonly processes: readonly LimitedProcess[];
}

/** The longest that a call of Redis may take, in milliseconds: a request that waits for Redis takes that long. */
export const CALL_MS = 500;
/** How long each client pauses, in milliseconds. */
const PAUSE_MS = 15;

/** Starts processes on one Redis, with the same limits; all end after the test, however it went. */
export function useLimitedProcesses(): (count: number, limits: object) => Promise<LimitedProcesses> {
  const closing: (() => Promise<void>)[] = [];
  afterEach(async () => {
    for (const close of closing.splice(0).reverse()) await close();
  });
  return async (count, limits) => {
    const [redis, simulator] = await Promise.all([
      startRedis(),
      startSimulator({
        deployments: { upstream: { kind: 'submissions', family: 'manuscripts', testPaths: true } },
      }),
    ]);
    closing.push(
      () => redis.close(),
      () => simulator.close(),
    );
    const start = async (): Promise<LimitedProcess> => {
      const gateway = await serveGateway(
        { origin: simulator.deployments.upstream.origin, ca: simulator.ca, settings: { limits } },
        { redis: { url: redis.url, keyPrefix: 'test', timeout: `${CALL_MS}ms` } },
      );
      const client = new Pool(gateway.origin);
      closing.push(
        () => gateway.close(),
        () => client.close(),
      );
      return {
        ...gateway,
        ask: async () => {
          const begun = performance.now();
          const answer = await client.request({ path: '/status/204', method: 'GET' });
          await answer.body.dump();
          const [, left] = /;r=(\d+)/.exec(String(answer.headers['ratelimit'])) ?? [];
          return { status: answer.statusCode, ms: performance.now() - begun, left: Number(left) };
        },
      };
    };
    const processes = await Promise.all(Array.from({ length: count }, start));
    return { redis, processes };
  };
}

export interface Load {
  readonly passed: number;
  readonly seconds: number;
  /** When the last request was refused, on the clock of this process in milliseconds. */
  readonly endedAt: number;
  /** Requests that all processes together had left when the last one was refused. */
  readonly left: number;
  /** Milliseconds within which 95 % of the answers came. */
  readonly usualMs: number;
}

/**
 * Sends more than the processes let pass, for at least so long, until one more is refused. Another answer than
 * 204 or 429 is an error.
 */
export async function saturate(
  processes: readonly LimitedProcess[],
  ms: number,
  /** Of each process. */
  clients = 4,
): Promise<Load> {
  // A bucket that nobody has used yet is full: time counts from the first answer.
  let begun: number | undefined;
  const answers: Asked[] = [];
  /** When the last request was refused after the time was over; undefined: not yet. */
  let ended: number | undefined;
  const client = async (process: LimitedProcess): Promise<void> => {
    while (ended === undefined) {
      const answer = await process.ask();
      answers.push(answer);
      const now = performance.now();
      begun ??= now;
      if (answer.status === 429 && now - begun >= ms) ended ??= now;
      await delay(PAUSE_MS);
    }
  };
  await Promise.all(processes.flatMap((process) => Array.from({ length: clients }, () => client(process))));
  const seconds = ((ended ?? 0) - (begun ?? 0)) / 1000;
  const other = answers.find(({ status }) => status !== 204 && status !== 429);
  if (other !== undefined) throw new Error(`The gateway answered ${other.status}`);
  const passed = answers.filter(({ status }) => status === 204).length;
  const sorted = answers.map((answer) => answer.ms).sort((x, y) => x - y);
  const left = answers.findLast(({ status }) => status === 429)?.left ?? Number.NaN;
  return {
    passed,
    seconds,
    endedAt: ended ?? 0,
    left,
    usualMs: sorted[Math.floor(sorted.length * 0.95)] ?? 0,
  };
}
