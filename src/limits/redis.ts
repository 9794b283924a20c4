import { randomUUID } from 'node:crypto';
import type { Cluster, Redis } from 'ioredis';
import { z } from 'zod';
import { within } from '../base/deadline.ts';
import { settleLimit } from './redis-script.ts';
import type { LimitStore, Report, Standing } from './store.ts';

/** The longest that an answer of Redis is waited for, in milliseconds. */
const CALL_MS = 100;

export interface RedisLimitsOptions {
  /** Opens a connection that comes back by itself and queues nothing while it is away. */
  readonly connect: () => Redis | Cluster;
  /** Before every key. */
  readonly keyPrefix: string;
}

/** Opens the store that processes share; Redis may be absent at the start and go away at any time. */
export function openRedisLimits(options: RedisLimitsOptions): LimitStore {
  return new RedisLimitStore(options);
}

/** tokens, used, others in flight, members, share */
const answer = z.tuple([z.coerce.number(), z.number(), z.number(), z.number(), z.coerce.number()]);

class RedisLimitStore implements LimitStore {
  /** Names this process among all. */
  readonly #process = randomUUID();
  readonly #prefix: string;
  readonly #connection: Redis | Cluster;
  /** Resolves when it is known whether there is a connection. */
  readonly #known: Promise<unknown>;

  constructor({ connect, keyPrefix }: RedisLimitsOptions) {
    this.#prefix = `${keyPrefix}:v1:limits`;
    this.#connection = connect();
    const known = Promise.withResolvers<void>();
    this.#known = known.promise;
    // An error without a listener would end the process; a call that fails says the same to who made it.
    this.#connection.on('ready', known.resolve).on('error', () => known.resolve());
    this.#connection.defineCommand('settleLimit', settleLimit);
  }

  async settle(name: string, report: Report): Promise<Standing> {
    const reply = await within(CALL_MS, async (signal) => {
      await this.#known;
      signal.throwIfAborted();
      return await this.#connection.settleLimit(
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
      );
    });
    const [tokens, used, othersInFlight, members, share] = answer.parse(reply);
    return { tokens, used, othersInFlight, members, share };
  }

  async close(): Promise<void> {
    this.#connection.disconnect();
  }
}
