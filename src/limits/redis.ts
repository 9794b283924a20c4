import { randomUUID } from 'node:crypto';
import { z } from 'zod';
import { RedisClient } from '../redis/client.ts';
import type { RedisOptions } from '../redis/connection.ts';
import { settleLimit } from './redis-script.ts';
import type { LimitState, LimitStore, Report } from './store.ts';

/**
 * Opens the limits that processes share; Redis may be absent at the start and go away at any time. `onRejected`: Redis
 * held a value of a limit that no process wrote; it was removed.
 */
export function openRedisLimits(redis: RedisOptions, onRejected: () => void): LimitStore {
  return new RedisLimitStore(redis, onRejected);
}

const count = z.int().min(0);
/** tokens, used, others in flight, members, share, values discarded */
const answer = z.tuple([
  z.coerce.number(),
  count,
  count,
  count.min(1),
  z.coerce.number().min(0).max(1),
  count,
]);
/** The least part of a limit that a process has. */
const LEAST_SHARE = 1e-6;

class RedisLimitStore implements LimitStore {
  /** Names this process among all. */
  readonly #process = randomUUID();
  readonly #prefix: string;
  readonly #client: RedisClient;
  readonly #onRejected: () => void;

  constructor(redis: RedisOptions, onRejected: () => void) {
    this.#prefix = `${redis.keyPrefix}:v1:limits`;
    this.#client = new RedisClient(redis, { settleLimit });
    this.#onRejected = onRejected;
  }

  async settle(name: string, report: Report): Promise<LimitState> {
    const reply = await this.#client.call((commands) =>
      commands.settleLimit(
        `${this.#prefix}:${name}`,
        this.#process,
        report.total,
        report.settled,
        report.forgiven,
        report.wanted,
        report.inFlight,
        report.lifetimeMs,
        report.perSecond,
        report.burst,
        report.tokens,
        report.used,
        report.day,
      ),
    );
    const [tokens, used, othersInFlight, members, share, discarded] = answer.parse(reply);
    if (discarded > 0) this.#onRejected();
    return { tokens, used, othersInFlight, members, share: Math.max(share, LEAST_SHARE) };
  }

  close(): Promise<void> {
    return this.#client.close();
  }
}
