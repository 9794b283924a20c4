import { randomUUID } from 'node:crypto';
import { z } from 'zod';
import { RedisClient } from '../redis/client.ts';
import type { RedisOptions } from '../redis/connection.ts';
import { settleLimit } from './redis-script.ts';
import { LEAST_SHARE, type LimitState, type LimitStore, limitStateForm, type Report } from './store.ts';

/** tokens, used, others in flight, members, share, values discarded; numbers with a fraction are texts */
const answer = z.array(z.coerce.number()).length(6);

/** The limits that processes share; Redis may be absent at the start and go away at any time. */
export class RedisLimitStore implements LimitStore {
  /** Names this process among all. */
  readonly #process = randomUUID();
  readonly #prefix: string;
  readonly #client: RedisClient;
  readonly #onRejected: () => void;

  /** `onRejected`: Redis held a value of a limit that no process wrote; it was removed. */
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
    const [tokens, used, othersInFlight, members, share = 0, discarded = 0] = answer.parse(reply);
    if (discarded > 0) this.#onRejected();
    const state = { tokens, used, othersInFlight, members, share: Math.max(share, LEAST_SHARE) };
    return limitStateForm.parse(state);
  }

  close(): Promise<void> {
    return this.#client.close();
  }
}
