import type { AppSetup } from '../setup/setup.ts';
import { toTransfer } from '../setup/transfer.ts';
import type { RemoteWorker } from './remote-worker.ts';

/**
 * Prepares a configuration in all of these workers. Resolves to those that have prepared it, which are to commit it at
 * once, and to the names of what changed. `stays`: false for a worker that is about to end, which does not count.
 * @throws Error if one cannot; then none has prepared it
 */
export async function prepareAll(
  members: readonly RemoteWorker[],
  setup: AppSetup,
  stays: (worker: RemoteWorker) => boolean,
): Promise<{ readonly remaining: readonly RemoteWorker[]; readonly changed: readonly string[] }> {
  const transferred = toTransfer(setup);
  const prepared = await Promise.allSettled(
    members.map(async (worker) => ({ worker, changed: await worker.prepare(transferred) })),
  );
  const remaining = members.filter((worker) => !worker.isGone && stays(worker));
  const failed = prepared.find(
    (each, at) => each.status === 'rejected' && remaining.includes(members[at] as RemoteWorker),
  );
  const [first] = prepared.flatMap((each) => (each.status === 'fulfilled' ? [each.value] : []));
  if (failed?.status !== 'rejected' && first !== undefined && remaining.length > 0) {
    return { remaining, changed: first.changed };
  }
  for (const worker of remaining) worker.abandon();
  throw failed?.status === 'rejected' ? failed.reason : new Error('no worker is there to check it');
}

/** Commits in all workers at once. Rejects if one of them could not apply credentials or limits. */
export function commitAll(workers: readonly RemoteWorker[]): Promise<void> {
  const settled = Promise.allSettled(workers.map((worker) => worker.commit())).then((results) => {
    const failed = results.find((each, at) => each.status === 'rejected' && workers[at]?.isGone === false);
    if (failed?.status === 'rejected') throw failed.reason;
  });
  // The caller awaits it later.
  settled.catch(() => undefined);
  return settled;
}
