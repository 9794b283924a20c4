import { setTimeout as delay } from 'node:timers/promises';
import { afterEach } from '@jest/globals';
import { Pool } from 'undici';
import { startSimulator } from '../../src/simulator/simulator.ts';
import { type RedisServer, startRedis } from './redis.ts';
import { type ServedGateway, serveGateway } from './served-gateway.ts';

/** A gateway in a process of its own, and a client of it. */
export interface LimitedProcess extends ServedGateway {
  /** Sends one request; resolves to its status and how long it took. */
  ask(): Promise<{ status: number; ms: number }>;
}

export interface LimitedProcesses {
  readonly redis: RedisServer;
  readonly processes: readonly LimitedProcess[];
}

/** How many requests a process is under at once, and how long each client pauses, in milliseconds. */
const CLIENTS = 4;
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
        { redis: { url: redis.url, keyPrefix: 'test' } },
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
          return { status: answer.statusCode, ms: performance.now() - begun };
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
  /** Milliseconds within which 95 % of the answers came. */
  readonly usualMs: number;
}

/** Sends more than the processes let pass, for so long. Another answer than 204 or 429 is an error. */
export async function saturate(processes: readonly LimitedProcess[], ms: number): Promise<Load> {
  const begun = performance.now();
  const answers: { status: number; ms: number }[] = [];
  const client = async (process: LimitedProcess): Promise<void> => {
    while (performance.now() - begun < ms) {
      answers.push(await process.ask());
      await delay(PAUSE_MS);
    }
  };
  await Promise.all(processes.flatMap((process) => Array.from({ length: CLIENTS }, () => client(process))));
  const seconds = (performance.now() - begun) / 1000;
  const other = answers.find(({ status }) => status !== 204 && status !== 429);
  if (other !== undefined) throw new Error(`The gateway answered ${other.status}`);
  const passed = answers.filter(({ status }) => status === 204).length;
  const sorted = answers.map((answer) => answer.ms).sort((x, y) => x - y);
  return { passed, seconds, usualMs: sorted[Math.floor(sorted.length * 0.95)] ?? 0 };
}
