import type { DeploymentVersion } from '../app/serving.ts';
import { mergeClientUse } from '../control/client-use.ts';
import type { ClientUse } from '../control/client-view.ts';
import type { RemoteWorker } from './remote-worker.ts';

/**
 * Puts a version in use in all of these workers.
 * @throws Error if one of them cannot, unless it has ended
 */
export async function promoteInAll(
  workers: readonly RemoteWorker[],
  choice: DeploymentVersion,
): Promise<void> {
  const results = await Promise.allSettled(workers.map((worker) => worker.promote(choice)));
  const failed = results.find((each, at) => each.status === 'rejected' && workers[at]?.isGone === false);
  if (failed?.status === 'rejected') throw failed.reason;
}

/**
 * Puts those versions in use in a new worker that another one uses: it starts with those that the configuration names
 * first, from which the others may have been promoted or rolled back.
 */
export async function adoptVersions(worker: RemoteWorker, other: RemoteWorker | undefined): Promise<void> {
  // The latest report may be from before a promotion.
  await other?.update([], false);
  const deployments = other?.last?.condition.deployments ?? [];
  const choices = deployments.flatMap(({ name: deployment, credentials }) =>
    credentials
      .filter(({ state }) => state === 'in use')
      .map(({ name: credential, version }) => ({ deployment, credential, version })),
  );
  // A version that the new configuration does not have is refused, and stays out of use.
  await Promise.allSettled(choices.map((choice) => worker.promote(choice)));
}

/** Returns what these workers know of a client; one that does not answer in time is left out. */
export async function clientUseOf(workers: readonly RemoteWorker[], client: string): Promise<ClientUse> {
  const asked = await Promise.allSettled(workers.map((worker) => worker.clientUse(client)));
  return mergeClientUse(asked.flatMap((each) => (each.status === 'fulfilled' ? [each.value] : [])));
}
