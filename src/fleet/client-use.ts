import { mergeClientUse } from '../control/client-use.ts';
import type { ClientUse } from '../control/client-view.ts';
import type { RemoteWorker } from './remote-worker.ts';

/** Merges the limits and refusals of a client from all workers; omits one that does not answer in time. */
export async function clientUseOf(workers: readonly RemoteWorker[], client: string): Promise<ClientUse> {
  const asked = await Promise.allSettled(workers.map((worker) => worker.clientUse(client)));
  return mergeClientUse(asked.flatMap((each) => (each.status === 'fulfilled' ? [each.value] : [])));
}
