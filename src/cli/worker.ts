import type { Command } from 'commander';
import { DataPlane } from '../app/data-plane.ts';
import { collectAll } from '../base/buffer-gc.ts';
import { ipcPort } from '../base/message-calls.ts';
import { ChannelChallengeStore } from '../challenges/store/channel.ts';
import { WorkerProcess } from '../fleet/worker.ts';
import { ChannelLimitStore } from '../limits/channel.ts';
import { CommandError, type Io, packageVersion, type Run } from './io.ts';
import { processParts } from './process-parts.ts';

/** `worker`: serves requests for the process that has started it; `serve` starts it with `workers`. */
export function registerWorker(program: Command, run: Run): void {
  program.command('worker').action(run(worker));
}

async function worker(io: Io): Promise<void> {
  if (process.send === undefined) {
    throw new CommandError(2, 'worker is not for people: run serve, which starts workers as `workers` says.');
  }
  // A terminal and a service manager signal all processes of the gateway; the primary decides what to do.
  for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP', 'SIGUSR2'] as const)
    process.on(signal, () => undefined);
  let stopTracing = (): Promise<void> => Promise.resolve();
  const version = await packageVersion();
  const port = ipcPort(process);
  const life = new WorkerProcess({
    port,
    version,
    open: async (setup, number) => {
      const parts = await processParts(io, setup, number);
      const { audit, metrics } = parts;
      stopTracing = parts.stopTracing;
      const onError = (operation: string): void => metrics.storeErrors.inc({ operation });
      const challenges = new ChannelChallengeStore(port, onError);
      const openLimits = (): ChannelLimitStore => new ChannelLimitStore(port);
      const plane = new DataPlane(setup, { ...parts, stores: { challenges, openLimits } });
      collectAll();
      return { plane, audit };
    },
  });
  await life.run();
  await stopTracing();
  process.disconnect?.();
}
