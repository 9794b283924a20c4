import type { DeploymentVersion, Worker } from '../app/worker.ts';
import { versionsInUse } from '../app/worker-state.ts';
import { messageOf } from '../base/error-code.ts';
import { reportError } from '../base/report-error.ts';
import type { WorkerState } from '../control/state.ts';
import type { VersionTest } from '../upstream/credential.ts';
import { type RemoteWorker, STATE_ONLY } from './remote-worker.ts';

interface Member extends Pick<RemoteWorker, 'number' | 'isGone'> {
  readonly calls: Pick<Worker, 'missing' | 'promote'>;
}

interface Reporter extends Pick<RemoteWorker, 'isGone'> {
  readonly calls: Pick<Worker, 'report'>;
}

/** Keeps the versions of credentials that workers use the same. */
export class WorkerVersions {
  /** Number of promotions so far. */
  #promotions = 0;

  /** One worker tests a version for all: the upstream may lock out an address that fails often. */
  async test(workers: readonly RemoteWorker[], choice: DeploymentVersion): Promise<VersionTest> {
    // A worker that was started later does not have a version that has left its sources.
    if ((await failuresOf(workers, (worker) => requireAll(worker, [choice]))).length > 0) return 'unknown';
    return (await workers[0]?.calls.testVersion(choice)) ?? 'unclear';
  }

  /**
   * Puts versions in use in all of these workers, or in none if one of them lacks one. `members`: they may become more
   * while they are checked.
   * @throws Error if one of them cannot, unless it has ended
   */
  async promote(members: () => readonly Member[], choices: readonly DeploymentVersion[]): Promise<void> {
    const checked = new Set<Member>();
    let workers = members();
    for (let added = workers; added.length > 0; added = workers.filter((worker) => !checked.has(worker))) {
      const [lacking] = await failuresOf(added, (worker) => requireAll(worker, choices));
      if (lacking !== undefined) throw new Error(`nothing has changed: ${lacking.reason}`);
      for (const worker of added) checked.add(worker);
      workers = members();
    }
    // A worker that starts from here on adopts these versions.
    this.#promotions += 1;
    const failed = await failuresOf(workers, ({ calls }) => calls.promote(choices));
    if (failed.length === 0) return;
    const used = workers.filter((worker) => !worker.isGone && !failed.some((each) => each.worker === worker));
    const inUse =
      used.length === 0 ? 'in no worker' : `in worker ${used.map(({ number }) => number).join(', ')}`;
    throw new Error(`in use ${inUse} only: ${failed.map(({ reason }) => reason).join('; ')}`);
  }

  /** The versions in use of each credential, in any of these workers, as they say now or said last. */
  async inUse(workers: readonly RemoteWorker[]): Promise<ReadonlyMap<string, ReadonlySet<string>>> {
    await Promise.all(workers.map((worker) => worker.update(STATE_ONLY)));
    const deployments = workers.flatMap(({ state }) => state?.deployments ?? []);
    return versionsInUse(deployments.flatMap(({ credentials }) => credentials));
  }

  /**
   * Puts those versions in use in a new worker that another one uses: it starts with those that the configuration names
   * first, from which the others may have been promoted or rolled back. `others`: those that may be asked, at each call.
   */
  async adopt(worker: Member, others: () => readonly Reporter[]): Promise<void> {
    let seen: number;
    do {
      seen = this.#promotions;
      await adoptVersions(worker, others());
      // A promotion meanwhile may have been undone in this worker by an older report.
    } while (seen !== this.#promotions);
  }
}

async function requireAll(worker: Member, choices: readonly DeploymentVersion[]): Promise<void> {
  const missing = await worker.calls.missing(choices);
  if (missing !== undefined) throw new Error(missing);
}

/** The workers in which this failed, and why. One that has ended is not among them: another one takes its place. */
async function failuresOf<W extends Member>(
  workers: readonly W[],
  act: (worker: W) => Promise<void>,
): Promise<{ readonly worker: W; readonly reason: string }[]> {
  const results = await Promise.allSettled(workers.map(act));
  return workers.flatMap((worker, at) => {
    const result = results[at];
    if (result?.status !== 'rejected' || worker.isGone) return [];
    return [{ worker, reason: `worker ${worker.number}: ${messageOf(result.reason)}` }];
  });
}

async function adoptVersions(worker: Member, others: readonly Reporter[]): Promise<void> {
  const deployments = (await currentState(others))?.deployments ?? [];
  const choices = deployments.flatMap(({ name: deployment, credentials }) =>
    credentials
      .filter(({ inUse }) => inUse)
      .map(({ credential, version }) => ({ deployment, credential, version })),
  );
  // A version that the new configuration does not have is refused, and stays out of use.
  await Promise.allSettled(choices.map((choice) => worker.calls.promote([choice])));
}

/**
 * The state of the first of these workers that answers. It is asked for now, and awaited without a limit: a report from
 * before a promotion would undo it. A worker that does not answer is ended.
 */
async function currentState(workers: readonly Reporter[]): Promise<WorkerState | undefined> {
  for (const worker of workers) {
    try {
      const { state } = await worker.calls.report({ auditFrom: undefined, metrics: [], withState: true });
      if (state !== undefined) return state;
    } catch (error) {
      if (!worker.isGone) reportError(error);
    }
  }
  return undefined;
}
