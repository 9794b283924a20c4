import { setTimeout as delay, setImmediate as nextTurn } from 'node:timers/promises';
import { RedisChallengeStore, type RedisStoreOptions } from '../../src/challenges/store/redis.ts';
import type { ChallengeStore } from '../../src/challenges/store/store.ts';
import type { RedisServers } from '../../src/redis/connection.ts';
import { until } from './until.ts';

/** A store, and all that it said about itself. */
export interface WatchedStore {
  readonly store: ChallengeStore;
  /** Each change of state, in order; `up`, or the reason why not. */
  readonly states: readonly string[];
  /** The failed operations, in order, with their errors. */
  readonly failures: readonly { readonly operation: string; readonly error: unknown }[];
  /** The values that were rejected, in order. */
  readonly rejections: readonly (readonly [kind: string, reason: string])[];
  /** Keys that the listener was called with, in order. */
  readonly changes: string[];
  /** Resolves to the milliseconds until Redis is seen there. */
  up(): Promise<number>;
  /** Resolves to the milliseconds until Redis is seen to be away. */
  down(): Promise<number>;
}

export function openWatched(servers: RedisServers, more: Partial<RedisStoreOptions> = {}): WatchedStore {
  const states: string[] = [];
  const rejections: [kind: string, reason: string][] = [];
  const failures: { operation: string; error: unknown }[] = [];
  const changes: string[] = [];
  const store = new RedisChallengeStore(redisOptions(servers, more), {
    onUp: (up, reason) => states.push(up ? 'up' : (reason ?? 'no reason')),
    onError: (operation, error) => failures.push({ operation, error }),
    onRejected: (kind, reason) => rejections.push([kind, reason]),
  });
  store.onChange((key) => changes.push(key));
  return {
    store,
    states,
    failures,
    rejections,
    changes,
    up: () => until(() => states.at(-1) === 'up'),
    down: () => until(() => states.length > 0 && states.at(-1) !== 'up'),
  };
}

/** Options of Redis for a test; others are absent, and all tests have one prefix. */
export function redisOptions(
  servers: RedisServers,
  more: Partial<RedisStoreOptions> = {},
): RedisStoreOptions {
  return {
    servers,
    username: undefined,
    password: undefined,
    sentinelUsername: undefined,
    sentinelPassword: undefined,
    keyPrefix: 'test',
    // A test that is not about the time of a call gives it as much as a busy machine may need.
    timeoutMs: 2_000,
    keys: [],
    tls: undefined,
    ...more,
  };
}

/** One server on this machine. */
export function single(port: number): RedisServers {
  return { kind: 'single', address: { host: '127.0.0.1', port }, database: 0 };
}

/** `timeoutMs` of stores whose calls are to end in time: short for a test, long enough for a reply on a busy machine. */
export const CALL_MS = 500;
/** A call ends little later than its own timer. */
const LIMIT_MS = CALL_MS + 50;

/**
 * The outcome of a call, or `late`. Timers end in the order of their times even where the machine stood still
 * for longer, and a call is given up one turn after its timer, so that a busy machine makes no call late.
 */
export function inTime<T>(call: Promise<T>): Promise<T | 'late'> {
  const late = async (): Promise<'late'> => {
    await delay(LIMIT_MS, undefined, { ref: false });
    for (let turns = 0; turns < 3; turns += 1) await nextTurn();
    return 'late';
  };
  return Promise.race([call, late()]);
}
