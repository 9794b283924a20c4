import { z } from 'zod';
import { CallClient, type ProcessPort, StoreServer } from '../base/message-calls.ts';
import type { Clocks } from './local-limit.ts';
import { MemoryLimitStore } from './memory.ts';
import { type LimitState, type LimitStore, limitStateForm, type Report, reportForm } from './store.ts';

/** Name of the service that `primaryLimits` serves. */
const LIMITS = 'limits';
/** Characters of the name of a limit: a name of the configuration. */
const LONGEST_NAME = 1024;

/** The body of the call that settles a limit. */
const settleForm = z.object({ name: z.string().max(LONGEST_NAME), report: reportForm });

/**
 * The limits of the primary process, or of another process that serves them. Each call ends within
 * `CALL_DEADLINE_MS`, and at once when the port is closed.
 */
export class ChannelLimitStore implements LimitStore {
  readonly #calls: CallClient;

  constructor(port: ProcessPort) {
    this.#calls = new CallClient({ port, service: LIMITS });
  }

  async settle(name: string, report: Report): Promise<LimitState> {
    const body: z.input<typeof settleForm> = { name, report };
    return limitStateForm.parse(await this.#calls.call('settle', body));
  }

  /** Does not close the port. */
  async close(): Promise<void> {
    this.#calls.close();
  }
}

/**
 * The limits that the processes of one machine share through its primary process. Each `ChannelLimitStore` is a
 * process of its own; one that is gone counts until the lifetime of its last report ends.
 */
export function primaryLimits(clocks: Clocks): StoreServer<LimitStore> {
  const memory = new MemoryLimitStore(clocks);
  return new StoreServer<LimitStore>({
    service: LIMITS,
    functions: new Map([['settle', settle]]),
    open: () => memory.join(),
  });
}

async function settle(store: LimitStore, body: unknown): Promise<unknown> {
  const { name, report } = settleForm.parse(body);
  return await store.settle(name, report);
}
