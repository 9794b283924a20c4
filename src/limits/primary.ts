import { StoreServer } from '../base/message-calls.ts';
import { LIMITS, settleForm } from './channel.ts';
import type { Clocks } from './local-limit.ts';
import { MemoryLimitStore } from './memory.ts';
import type { LimitStore } from './store.ts';

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
