import { randomUUID } from 'node:crypto';
import type { Cluster, Redis } from 'ioredis';
import { z } from 'zod';
import { within } from '../base/deadline.ts';
import { settleLimit } from './redis-script.ts';
import type { LimitStore, Report, Standing } from './store.ts';

export interface RedisLimitsOptions {
  /** Opens a connection that comes back by itself and queues nothing while it is away. */
  readonly connect: () => Redis | Cluster;
  /** Before every key. */
  readonly keyPrefix: string;
  /** The longest that a reply is waited for, in milliseconds. */
  readonly timeoutMs: number;
  /** Redis held something of a limit that no process wrote; it was removed. */
  readonly onRejected: () => void;
}

/** Opens the store that processes share; Redis may be absent at the start and go away at any time. */
export function openRedisLimits(options: RedisLimitsOptions): LimitStore {
  return new RedisLimitStore(options);
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
  readonly #connection: Redis | Cluster;
  /** Resolves when it is known whether there is a connection. */
  readonly #known: Promise<unknown>;
  readonly #timeoutMs: number;
  readonly #onRejected: () => void;

  constructor({ connect, keyPrefix, timeoutMs, onRejected }: RedisLimitsOptions) {
    this.#timeoutMs = timeoutMs;
    this.#onRejected = onRejected;
    this.#prefix = `${keyPrefix}:v1:limits`;
    this.#connection = connect();
    const known = Promise.withResolvers<void>();
    this.#known = known.promise;
    // An error without a listener would end the process; a call that fails says the same to who made it.
    this.#connection.on('ready', known.resolve).on('error', () => known.resolve());
    this.#connection.defineCommand('settleLimit', settleLimit);
  }

  async settle(name: string, report: Report): Promise<Standing> {
    const reply = await within(this.#timeoutMs, async (signal) => {
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
    const [tokens, used, othersInFlight, members, share, discarded] = answer.parse(reply);
    if (discarded > 0) this.#onRejected();
    return { tokens, used, othersInFlight, members, share: Math.max(share, LEAST_SHARE) };
  }

  async close(): Promise<void> {
    this.#connection.disconnect();
  }
}
