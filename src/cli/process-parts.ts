import { join } from 'node:path';
import { isNativeError } from 'node:util/types';
import { DataPlane } from '../app/data-plane.ts';
import type { SharedStores } from '../app/store.ts';
import { uncaughtErrors } from '../app/uncaught.ts';
import { type Audit, type AuditOptions, type AuditSink, noAudit } from '../audit/audit.ts';
import { openAudit } from '../audit/journal/file-audit.ts';
import { auditKeys } from '../audit/keys.ts';
import { RedisStream } from '../audit/shipping/redis-stream.ts';
import { StreamSink } from '../audit/shipping/stream-sink.ts';
import { monotonicClock } from '../base/clock.ts';
import { createLog, type Log } from '../base/log.ts';
import { type BuildInfo, Metrics } from '../metrics/metrics.ts';
import type { RedisOptions } from '../redis/connection.ts';
import type { AppSetup } from '../setup/setup.ts';
import type { Tracing } from '../tracing/tracing.ts';
import { bufferGc } from './buffer-gc.ts';
import { CommandError } from './command-error.ts';
import type { Io } from './io.ts';
import { startTracing } from './tracing.ts';
import { packageVersion } from './version.ts';

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
export async function processParts(io: Io, setup: AppSetup, worker?: number): Promise<ProcessParts> {
  const log = createLog(io.stderr, worker === undefined ? {} : { worker });
  log.level = setup.config.log.level;
  logWarnings(log);
  const build = { version: await packageVersion(), node: process.version };
  const { tracing, stop: stopTracing } = await startTracing(io.env, build.version, log);
  const audit = await openAuditLog(setup.audit, setup.redis, log);
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

/**
 * Opens the audit log of this process, or one that a worker has left. `options` undefined: nothing is recorded.
 * @throws CommandError if it cannot be written
 */
export async function openAuditLog(
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
