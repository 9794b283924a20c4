import { type Activation, NoWorkerError } from '../app/worker.ts';
import type { AppSetup } from '../setup/setup.ts';
import { toTransfer } from '../setup/transfer.ts';
import type { RemoteWorker } from './remote-worker.ts';

type Member = Pick<RemoteWorker, 'isGone' | 'silent' | 'inTurn' | 'begin' | 'kill'> & {
  readonly calls: Pick<RemoteWorker['calls'], 'prepare' | 'commit'>;
};

/**
 * Activates a configuration in each of these workers on its own, as soon as that one has prepared it, so that none waits
 * for one that is slow. The first that responds decides whether it can be used. `stays`: false for a worker that is about
 * to end, which does not count. `followers`: workers that activate it, too, and never decide.
 * @throws Error if it cannot be used; then no worker uses it
 */
export async function activateIn<W extends Member>(
  members: readonly W[],
  setup: AppSetup,
  stays: (worker: W) => boolean,
  followers: readonly W[] = [],
): Promise<Activation> {
  const transferred = toTransfer(setup);
  const decision = Promise.withResolvers<readonly string[]>();
  const counts = (worker: W): boolean => !worker.isGone && stays(worker);
  const activate = async (worker: W, decides: boolean): Promise<void> => {
    try {
      const changed = await worker.calls.prepare(transferred);
      if (decides) decision.resolve(changed);
    } catch (error) {
      if (!counts(worker)) throw error;
      decision.reject(error);
      await decision.promise;
      // It cannot follow the others: the one that takes its place starts with this configuration.
      worker.kill();
      throw error;
    }
    try {
      await decision.promise;
    } catch (error) {
      worker.begin((calls) => calls.abandon());
      throw error;
    }
    await worker.calls.commit();
  };
  const deciding = members.map((worker) => worker.inTurn(() => activate(worker, true)));
  void Promise.allSettled(deciding).then(() => decision.reject(new NoWorkerError()));
  const following = followers.map((worker) => worker.inTurn(() => activate(worker, false)));
  const settled = settledIn([...members, ...followers], [...deciding, ...following], counts);
  // The caller awaits it later, and gets the error.
  settled.catch(() => undefined);
  return { changed: await decision.promise, settled };
}

/**
 * Rejects if a worker could not apply credentials or limits. A silent one is not waited for: it applies them or is
 * replaced.
 */
async function settledIn<W extends Member>(
  members: readonly W[],
  activated: readonly Promise<void>[],
  counts: (worker: W) => boolean,
): Promise<void> {
  const results = await Promise.allSettled(
    members.map((worker, at) => Promise.race([activated[at], worker.silent])),
  );
  const failed = results.find((each, at) => each.status === 'rejected' && counts(members[at] as W));
  if (failed?.status === 'rejected') throw failed.reason;
}
