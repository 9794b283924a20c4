import type { AddressInfo } from 'node:net';
import type { RemoteWorker } from './remote-worker.ts';

/** A worker that serves on this address. */
export interface StartedWorker {
  readonly worker: RemoteWorker;
  readonly address: AddressInfo;
}

/** Those that could be started. */
export function startedOf(results: readonly PromiseSettledResult<StartedWorker>[]): StartedWorker[] {
  return results.flatMap((each) => (each.status === 'fulfilled' ? [each.value] : []));
}
