import type { Log } from '../base/log.ts';
import { MemoryChallengeStore } from '../challenges/memory.ts';
import { openRedisStore } from '../challenges/redis.ts';
import type { RedisOptions } from '../challenges/redis-connection.ts';
import type { ChallengeStore } from '../challenges/store.ts';
import type { Metrics } from '../metrics/metrics.ts';

/** Redis, or the memory of this process alone. Tells of Redis when it comes and goes, never of each call,
 * and of values that were rejected once for each kind and reason. */
export function openStore(
  redis: RedisOptions | undefined,
  { storeUp, storeErrors, storeRejections }: Metrics,
  log: Log,
  onUp: (up: boolean) => void,
): ChallengeStore {
  storeUp.set(redis === undefined ? 1 : 0);
  if (redis === undefined) return new MemoryChallengeStore();
  const logged = new Set<string>();
  return openRedisStore(redis, {
    onUp: (up, reason) => {
      storeUp.set(up ? 1 : 0);
      onUp(up);
      if (up) log.info('Redis is there: nonces are shared');
      else log.warn({ reason }, 'Redis is not there: nonces are not shared, and everything else goes on');
    },
    onError: (operation) => storeErrors.inc({ operation }),
    onRejected: (kind, reason) => {
      storeRejections.inc({ kind, reason });
      const which = `${kind} ${reason}`;
      if (logged.has(which)) return;
      logged.add(which);
      log.warn({ kind, reason, signed: redis.keys.length > 0 }, 'a value in Redis was rejected and removed');
    },
  });
}
