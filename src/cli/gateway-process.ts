import cluster from 'node:cluster';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { isNativeError } from 'node:util/types';
import { App, type AppDeps } from '../app/app.ts';
import { DataPlane } from '../app/data-plane.ts';
import type { Serving } from '../app/serving.ts';
import type { SharedStores } from '../app/store.ts';
import { uncaughtErrors } from '../app/uncaught.ts';
import { type Audit, type AuditOptions, type AuditSink, noAudit } from '../audit/audit.ts';
import { openAudit } from '../audit/journal/file-audit.ts';
import { auditKeys } from '../audit/keys.ts';
import { processOf } from '../audit/replica-name.ts';
import { foldersIn } from '../audit/segments/segment.ts';
import { AuditSinks } from '../audit/sinks/audit-sinks.ts';
import { RedisStream } from '../audit/stream/redis-stream.ts';
import { StreamSink } from '../audit/stream/stream-sink.ts';
import { monotonicClock } from '../base/clock.ts';
import { createLog, type Log } from '../base/log.ts';
import { primaryChallenges } from '../challenges/store/primary.ts';
import { Fleet } from '../fleet/fleet.ts';
import { IdleLogs } from '../fleet/idle-logs.ts';
import { replicaOf } from '../fleet/worker-setup.ts';
import { primaryLimits } from '../limits/primary.ts';
import { MergedMetrics } from '../metrics/merged-metrics.ts';
import { type BuildInfo, Metrics } from '../metrics/metrics.ts';
import type { RedisOptions } from '../redis/connection.ts';
import type { AppSetup } from '../setup/setup.ts';
import type { Tracing } from '../tracing/tracing.ts';
import { bufferGc } from './buffer-gc.ts';
import { CommandError } from './command-error.ts';
import { processContext } from './process-context.ts';
import { systemdOf } from './systemd.ts';
import { startTracing } from './tracing.ts';
import { packageVersion } from './version.ts';

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
  setup: AppSetup,
  reloading: Pick<AppDeps, 'source' | 'watchFile'> = {},
): Promise<GatewayProcess> {
  const parts = await processParts(setup);
  if (setup.audit === undefined) parts.log.warn('no audit section in the configuration; nothing is recorded');
  const { log, build, audit, metrics, stopTracing } = parts;
  const merged = new MergedMetrics(metrics.registry);
  const fleet = fleetOf(setup, parts, merged);
  const serving: Serving = fleet ?? dataPlane(setup, parts);
  // dist/ is two folders up from src/cli/ in a checkout, and from dist/cli/ in the package.
  const consoleFolder = fileURLToPath(new URL('../../dist/console', import.meta.url));
  const { uid } = processContext();
  const serviceManager = systemdOf(process.env, log);
  const app = new App(setup, {
    serving,
    log,
    build,
    uid,
    audit,
    auditSinks: auditSinksOf(setup, log),
    metrics,
    merged,
    consoleFolder,
    serviceManager,
    ...reloading,
  });
  return { app, log, upgrade: fleet && (() => fleet.upgrade()), stopTracing };
}

/** Parts of every process of the gateway. */
export interface ProcessParts {
  readonly log: Log;
  readonly build: BuildInfo;
  readonly audit: Audit;
  readonly metrics: Metrics;
  readonly tracing: Tracing | undefined;
  readonly uncaught: (error: unknown) => void;
  readonly stopTracing: () => Promise<void>;
}

/**
 * Creates the parts of this process, which from then on outlives errors that reach no caller. `worker`: its number
 * for the log; undefined: it is no worker.
 */
export async function processParts(setup: AppSetup, worker?: number): Promise<ProcessParts> {
  const log = createLog(process.stderr.isTTY, worker === undefined ? {} : { worker });
  log.level = setup.config.log.level;
  logWarnings(log);
  const build = { version: await packageVersion(), node: process.version };
  const { tracing, stop: stopTracing } = await startTracing(process.env, build.version, log);
  const audit = await auditFor(setup.audit, setup.redis, log);
  const isPrimary = worker === undefined && setup.config.workers !== 1;
  const metrics = new Metrics(build, { withLoop: !isPrimary });
  const uncaught = uncaughtErrors(log, monotonicClock, metrics);
  // A request shares only counters, nonces and the audit log with others, and these are consistent between any two
  // steps; an exit would abort every other request.
  process.on('uncaughtException', uncaught);
  process.on('unhandledRejection', uncaught);
  return { log, build, audit, metrics, tracing, uncaught, stopTracing };
}

/** Logs warnings of Node.js, which it would print to stderr in a format of its own. */
function logWarnings(log: Log): void {
  process.removeAllListeners('warning');
  process.on('warning', ({ name, message }) => log.warn({ name }, message));
}

/** Creates the data plane of this process. `stores`: those that it shares with others. */
export function dataPlane(setup: AppSetup, parts: ProcessParts, stores?: SharedStores): DataPlane {
  const { log, audit, metrics, tracing, uncaught } = parts;
  const deps = { clock: monotonicClock, log, audit, metrics, tracing, uncaught };
  return new DataPlane(setup, { ...deps, bufferGc: bufferGc(), stores });
}

/** Creates the workers that the configuration asks for; undefined: it asks for none. */
function fleetOf(setup: AppSetup, parts: ProcessParts, merged: MergedMetrics): Fleet | undefined {
  const { workers } = setup.config;
  if (workers === 1) return undefined;
  // The name as it was given: after an upgrade, a symbolic link in it leads to the new version.
  cluster.setupPrimary({ exec: process.argv[1], args: ['worker'], serialization: 'advanced' });
  // Workers accept from one socket. One that hangs accepts nothing, so no connection is lost to it.
  cluster.schedulingPolicy = cluster.SCHED_NONE;
  const clock = monotonicClock;
  const shared = [
    primaryChallenges(clock),
    primaryLimits({ now: () => clock.now(), epoch: () => Date.now() }),
  ];
  return new Fleet(setup, {
    clock,
    ...parts,
    merged,
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
    open: (number) => auditFor(audit && { ...audit, replica: replicaOf(audit.replica, number) }, redis, log),
  });
}

async function auditFor(
  options: AuditOptions | undefined,
  redis: RedisOptions | undefined,
  log: Log,
): Promise<Audit> {
  if (options === undefined) return noAudit;
  const sink =
    redis && options.stream?.redis === true ? sinkFor(options, options.stream, redis, log) : undefined;
  try {
    return await openAudit(options, { log, ...(sink && { sink }) });
  } catch (error) {
    await sink?.close();
    // `check` cannot detect this: the disk is full, or another gateway writes to the folder.
    throw new CommandError(2, `audit.directory: ${isNativeError(error) ? error.message : error}`, error);
  }
}

/** Starts sending the logs of this replica and its workers; undefined: there is nowhere to send them. */
function auditSinksOf({ audit, auditSinks: sinks }: AppSetup, log: Log): AuditSinks | undefined {
  if (audit === undefined || sinks.length === 0) return undefined;
  const { directory, replica, key } = audit;
  return new AuditSinks({ directory, replica, key, sinks }, log);
}

function sinkFor(
  { directory, replica, key }: AuditOptions,
  { maxLength }: { readonly maxLength: number },
  redis: RedisOptions,
  log: Log,
): AuditSink {
  const keys = auditKeys(key);
  const stream = new RedisStream(redis, [keys]);
  return new StreamSink({ folder: join(directory, replica), replica, keys, maxLength }, { stream, log });
}

/** Formats an address as a URL. */
export function urlOf(
  { address, port }: { address: string; port: number },
  scheme: 'http' | 'https' = 'http',
): string {
  return `${scheme}://${address.includes(':') ? `[${address}]` : address}:${port}`;
}
