import cluster from 'node:cluster';
import { availableParallelism } from 'node:os';
import { fileURLToPath } from 'node:url';
import { App, type AppDeps } from '../app/app.ts';
import { openAuditLog, openDataPlane, type ProcessParts } from '../app/compose.ts';
import { processOf } from '../audit/replica-name.ts';
import { foldersIn } from '../audit/segments/segment.ts';
import type { Log } from '../base/log.ts';
import { addressName, type OpenAddress, socketPath } from '../base/open-port.ts';
import { primaryChallenges } from '../challenges/store/primary.ts';
import { IdleLogs } from '../fleet/audit-logs.ts';
import { Fleet } from '../fleet/fleet.ts';
import { replicaOf } from '../fleet/worker.ts';
import { primaryLimits } from '../limits/primary.ts';
import type { AppSetup } from '../setup/setup.ts';
import { type Io, processContext } from './io.ts';
import { processParts } from './process-parts.ts';
import { systemdOf } from './systemd.ts';

export interface GatewayProcess {
  readonly app: App;
  readonly log: Log;
  /** Replaces the worker processes; undefined: this process serves itself. */
  readonly upgrade: (() => Promise<void>) | undefined;
  /** Sends the last traces and stops the SDK. */
  readonly stopTracing: () => Promise<void>;
}

/** Creates the gateway of this process, with a log on stderr; it has workers if the configuration asks for them. */
export async function gatewayProcess(
  io: Io,
  setup: AppSetup,
  reloading: Pick<AppDeps, 'source' | 'watchFile'> = {},
): Promise<GatewayProcess> {
  const parts = await processParts(io, setup);
  if (setup.audit === undefined) parts.log.warn('no audit section in the configuration; nothing is recorded');
  const { log, stopTracing } = parts;
  const fleet = fleetOf(setup, parts);
  // dist/ is two folders up from src/cli/ in a checkout, and from dist/cli/ in the package.
  const consoleFolder = fileURLToPath(new URL('../../dist/console', import.meta.url));
  const { uid } = processContext(io);
  const serviceManager = systemdOf(io.env, log);
  const serving = fleet ?? openDataPlane(setup, parts);
  const app = new App(setup, { ...parts, serving, uid, consoleFolder, serviceManager, ...reloading });
  return { app, log, upgrade: fleet && (() => fleet.upgrade()), stopTracing };
}

/** Creates the workers that the configuration asks for; undefined: it asks for none. */
function fleetOf(setup: AppSetup, parts: ProcessParts): Fleet | undefined {
  const { workers } = setup.config;
  if (workers === 1) return undefined;
  // Workers accept from one socket. One that hangs accepts nothing, so no connection is lost to it. `setupPrimary`
  // freezes the policy.
  cluster.schedulingPolicy = cluster.SCHED_NONE;
  // The name as it was given: after an upgrade, a symbolic link in it leads to the new version.
  cluster.setupPrimary({ exec: process.argv[1], args: ['worker'], serialization: 'advanced' });
  const { clock } = parts;
  const shared = [
    primaryChallenges(clock),
    primaryLimits({ now: () => clock.now(), epoch: () => Date.now() }),
  ];
  return new Fleet(setup, {
    ...parts,
    workers: workers === 'auto' ? availableParallelism() : workers,
    fork: () => cluster.fork(),
    idleLogs: idleLogs(setup, parts.log),
    share: (port) => {
      for (const store of shared) store.serve(port);
    },
  });
}

function idleLogs({ audit, redis }: AppSetup, log: Log): IdleLogs {
  return new IdleLogs({
    log,
    list: async () => {
      if (audit === undefined) return [];
      const names = await foldersIn(audit.directory, audit.replica);
      return names.map((name) => processOf(name).worker).filter((worker) => worker > 0);
    },
    open: (number) =>
      openAuditLog(audit && { ...audit, replica: replicaOf(audit.replica, number) }, redis, log),
  });
}

/** Formats an address as a URL; that of a UNIX socket stays as it is. */
export function urlOf(address: OpenAddress, scheme: 'http' | 'https' = 'http'): string {
  const name = addressName(address);
  return socketPath(address.address) === undefined ? `${scheme}://${name}` : name;
}
