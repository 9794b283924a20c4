import { randomUUID } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import type { Clock } from '../base/clock.ts';
import { ignoreAbort } from '../base/expected-errors.ts';
import type { RedisStoreOptions } from '../challenges/store/redis.ts';
import { RedisSession } from '../redis/session.ts';
import { type Finding, fine, wrong } from './finding.ts';

/** Time limit for connecting to Redis, in milliseconds; the first attempt may fail. */
const GRACE_MS = 2_000;

/**
 * Checks with the gateway's own heartbeat that Redis takes writes and passes on messages, and that values
 * are signed.
 */
export async function examineRedis(redis: RedisStoreOptions, clock: Clock): Promise<Finding> {
  const prefix = `${redis.keyPrefix}:doctor`;
  const up = Promise.withResolvers<true>();
  let problem = `no reply within ${GRACE_MS} ms`;
  const session = new RedisSession({
    redis,
    scripts: {},
    channel: prefix,
    ownChannel: `${prefix}:echo:${randomUUID()}`,
    pulseKeys: () => [`${prefix}:pulse`],
    onUp: (isUp, reason) => {
      if (isUp) up.resolve(true);
      else problem = reason ?? problem;
    },
    onMessage: () => undefined,
    onRejoin: () => undefined,
  });
  const over = new AbortController();
  try {
    const late = pause(GRACE_MS, false, { signal: over.signal }).catch(
      (error: unknown) => ignoreAbort(error) ?? false,
    );
    if (!(await Promise.race([up.promise, late]))) return unusable(problem);
    const begun = clock.now();
    await session.call((commands) => commands.ping());
    const latencyMs = Math.round((clock.now() - begun) * 10) / 10;
    const saw = `reachable, writable, answers in ${latencyMs} ms`;
    const signed = redis.keys.length > 0;
    if (signed) return fine('redis', `${saw}, values are signed`, { latencyMs, signed });
    return wrong('redis', 'redis-unsigned', `${saw}, values are not signed`, { latencyMs, signed });
  } catch (error) {
    return unusable(error instanceof Error ? error.message : problem);
  } finally {
    over.abort();
    await session.close();
  }
}

/** Classifies an error by the code that Redis puts at its start. */
function unusable(problem: string): Finding {
  if (/^(NOAUTH|WRONGPASS|NOPERM|ERR AUTH)/.test(problem)) return wrong('redis', 'redis-refused', problem);
  if (/READONLY|MISCONF|OOM|NOREPLICAS/.test(problem)) return wrong('redis', 'redis-not-writable', problem);
  return wrong('redis', 'redis-unreachable', problem);
}
