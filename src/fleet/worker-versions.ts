import type { DeploymentVersion } from '../app/serving.ts';
import type { PlaneReport } from '../control/merge.ts';
import type { VersionTest } from '../upstream/credential-selector.ts';
import type { RemoteWorker } from './remote-worker.ts';

/** Keeps the versions of credentials that workers use the same. */
export class WorkerVersions {
  /** Number of promotions so far. */
  #promotions = 0;

  /** One worker tests a version for all: the upstream may lock out an address that fails often. */
  async test(workers: readonly RemoteWorker[], choice: DeploymentVersion): Promise<VersionTest> {
    // A worker that was started later does not have a version that has left its sources.
    if (!workers.every(({ state }) => hasVersion(state, choice))) return 'unknown';
    return (await workers[0]?.testVersion(choice)) ?? 'unclear';
  }

  /**
   * Puts a version in use in all of these workers.
   * @throws Error if one of them cannot, unless it has ended
   */
  async promote(workers: readonly RemoteWorker[], choice: DeploymentVersion): Promise<void> {
    this.#promotions += 1;
    const results = await Promise.allSettled(workers.map((worker) => worker.promote(choice)));
    const failed = results.find((each, at) => each.status === 'rejected' && workers[at]?.isGone === false);
    if (failed?.status === 'rejected') throw failed.reason;
  }

  /**
   * Puts those versions in use in a new worker that another one uses: it starts with those that the configuration names
   * first, from which the others may have been promoted or rolled back.
   */
  async adopt(worker: RemoteWorker, other: () => RemoteWorker | undefined): Promise<void> {
    let seen: number;
    do {
      seen = this.#promotions;
      await adoptVersions(worker, other());
      // A promotion meanwhile may have been undone in this worker by an older report.
    } while (seen !== this.#promotions);
  }
}

async function adoptVersions(worker: RemoteWorker, other: RemoteWorker | undefined): Promise<void> {
  // The latest report may be from before a promotion.
  await other?.update({ metrics: [], withState: true, withLines: false });
  const deployments = other?.state?.condition.deployments ?? [];
  const choices = deployments.flatMap(({ name: deployment, credentials }) =>
    credentials
      .filter(({ state }) => state === 'in use')
      .map(({ name: credential, version }) => ({ deployment, credential, version })),
  );
  // A version that the new configuration does not have is refused, and stays out of use.
  await Promise.allSettled(choices.map((choice) => worker.promote(choice)));
}

function hasVersion(
  state: PlaneReport | undefined,
  { deployment, credential, version }: DeploymentVersion,
): boolean {
  const facts = state?.condition.deployments.find(({ name }) => name === deployment);
  return facts?.credentials.some((each) => each.name === credential && each.version === version) === true;
}
