import type { Clock } from '../base/clock.ts';
import type { Log } from '../base/log.ts';
import type { Config } from '../config/schema.ts';
import { Limits, type LimitsOptions } from '../limits/limits.ts';
import { openRedisLimits } from '../limits/redis.ts';
import type { LimitSettings } from '../limits/settings.ts';
import type { Metrics } from '../metrics/metrics.ts';
import type { RedisOptions } from '../redis/connection.ts';
import { type SharedStores, tellRejections } from './store.ts';

export interface LimitsSetup {
  readonly config: Config;
  /** Undefined without Redis. */
  readonly redis: RedisOptions | undefined;
}

export interface LimitsDeps {
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
