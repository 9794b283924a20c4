import type { Clock } from '../base/clock.ts';
import type { Log } from '../base/log.ts';
import { MemoryChallengeStore } from '../challenges/store/memory.ts';
import {
  RedisChallengeStore,
  type RedisStoreOptions,
  type RejectionReason,
} from '../challenges/store/redis.ts';
import type { ChallengeStore } from '../challenges/store/store.ts';
import type { Config } from '../config/schema.ts';
import { Limits, type LimitsOptions } from '../limits/limits.ts';
import { openRedisLimits } from '../limits/redis.ts';
import type { LimitSettings } from '../limits/settings.ts';
import type { LimitStore } from '../limits/store.ts';
import type { Metrics } from '../metrics/metrics.ts';
import type { RedisOptions } from '../redis/connection.ts';

/** The stores that processes of one machine share without Redis. */
export interface SharedStores {
  readonly challenges: ChallengeStore;
  readonly openLimits: () => LimitStore;
}

interface StoreDeps {
  readonly stores: SharedStores | undefined;
  readonly metrics: Metrics;
  readonly log: Log;
  /** Called when Redis becomes reachable or unreachable. */
  readonly onUp: (up: boolean) => void;
}

/**
 * Opens the store in Redis, or else the one that is shared with other processes, or one in memory. Logs when Redis
 * becomes reachable or unreachable, not each failed call.
 */
export function openStore(
  redis: RedisStoreOptions | undefined,
  { stores, metrics, log, onUp }: StoreDeps,
): ChallengeStore {
  const { storeUp, storeErrors } = metrics;
  storeUp.set(redis === undefined ? 1 : 0);
  if (redis === undefined) return stores?.challenges ?? new MemoryChallengeStore();
  return new RedisChallengeStore(redis, {
    onUp: (up, reason) => {
      storeUp.set(up ? 1 : 0);
      onUp(up);
      if (up) log.info('Redis reachable; nonces are shared');
      else log.warn({ reason }, 'Redis unreachable; nonces are not shared, requests are served');
    },
    onError: (operation) => storeErrors.inc({ operation }),
    onRejected: tellRejections(metrics, log),
  });
}

/** Counts rejected values in Redis, and logs each kind and reason once. */
function tellRejections(
  { storeRejections }: Metrics,
  log: Log,
): (kind: string, reason: RejectionReason) => void {
  const logged = new Set<string>();
  return (kind, reason) => {
    storeRejections.inc({ kind, reason });
    const which = `${kind} ${reason}`;
    if (logged.has(which)) return;
    logged.add(which);
    log.warn({ kind, reason }, 'value in Redis rejected and removed; no gateway with these keys wrote it');
  };
}

interface LimitsSetup {
  readonly config: Config;
  /** Undefined without Redis. */
  readonly redis: RedisOptions | undefined;
}

interface LimitsDeps {
  /** Undefined: without Redis, this process shares nothing. */
  readonly stores: SharedStores | undefined;
  readonly clock: Clock;
  readonly metrics: Metrics;
  readonly log: Log;
}

/** Creates the limits, shared through Redis or else with other processes of the machine, if there are any. */
export function openLimits({ config, redis }: LimitsSetup, deps: LimitsDeps): Limits {
  const { stores, clock, metrics, log } = deps;
  const reject = tellRejections(metrics, log);
  const onRejected = (): void => reject('limits', 'malformed');
  return new Limits(limitsOptions(config), {
    clocks: { now: () => clock.now(), epoch: () => Date.now() },
    metrics,
    openStore: redis ? () => openRedisLimits(redis, onRejected) : stores?.openLimits,
  });
}

/** Returns the limits in a configuration. */
export function limitsOptions({ clients, deployments }: Config): LimitsOptions {
  return {
    clients: limited(clients.map(({ id, limits }) => [id, limits])),
    deployments: limited(Object.entries(deployments).map(([name, { limits }]) => [name, limits])),
  };
}

function limited(
  all: readonly (readonly [name: string, limits: LimitSettings | undefined])[],
): ReadonlyMap<string, LimitSettings> {
  return new Map(all.flatMap(([name, limits]) => (limits === undefined ? [] : [[name, limits] as const])));
}
