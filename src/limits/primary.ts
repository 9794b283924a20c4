import { StoreServer } from '../base/store-server.ts';
import { LIMITS, settleForm } from './channel.ts';
import type { Clocks } from './local-limit.ts';
import { MemoryLimitStore } from './memory.ts';
import type { LimitStore } from './store.ts';

/**
 * The limits that the processes of one machine share through its primary process. Each `ChannelLimitStore` is a
 * process of its own; one that is gone counts until the lifetime of its last report ends.
 */
export function primaryLimits(clocks: Clocks): StoreServer<LimitStore> {
  return new StoreServer<LimitStore>({
    service: LIMITS,
    memory: new MemoryLimitStore(clocks),
    functions: new Map([['settle', settle]]),
  });
}

async function settle(store: LimitStore, body: unknown): Promise<unknown> {
  const { name, report } = settleForm.parse(body);
  return await store.settle(name, report);
}
