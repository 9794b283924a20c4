import { type Audit, type AuditOptions, noAudit } from '../audit/audit.ts';
import { openAudit } from '../audit/journal/file-audit.ts';
import type { BufferGc } from '../base/buffer-gc.ts';
import type { Clock } from '../base/clock.ts';
import { errorCode, fileMessageOf } from '../base/error-code.ts';
import type { Log } from '../base/log.ts';
import { describeError } from '../base/report-error.ts';
import { Throttle } from '../base/throttle.ts';
import { MergedMetrics } from '../control/merged-metrics.ts';
import { FlightRecorder } from '../handshake/flight-recorder.ts';
import { type BuildInfo, Metrics } from '../metrics/metrics.ts';
import type { AppSetup } from '../setup/setup.ts';
import type { Tracing } from '../tracing/tracing.ts';
import { FlightFiles } from './flight-files.ts';

/** The properties of the process that compose() needs. */
interface ProcessOptions {
  /** Number of the worker; left out: the process is not a worker. */
  readonly worker?: number | undefined;
  readonly log: Log;
  readonly build: BuildInfo;
  readonly clock: Clock;
  /** Undefined if tracing is off. */
  readonly tracing: Tracing | undefined;
  readonly bufferGc: BufferGc;
}

/**
 * Parts of every process of the gateway. A worker makes a data plane of them, a process that listens for control an
 * `App`.
 */
export interface ProcessParts extends ProcessOptions {
  readonly audit: Audit;
  readonly metrics: Metrics;
  /** The metrics of all processes of the gateway. */
  readonly merged: MergedMetrics;
  /** The last events of nonces and credentials in this process. */
  readonly recorder: FlightRecorder;
  readonly flightFiles: FlightFiles;
  /** Counts and logs an error that reached no caller. Never throws. */
  readonly uncaught: (error: unknown) => void;
}

/** An audit log that cannot be written; the message names the key of the configuration and the reason. */
export class AuditLogError extends Error {
  override readonly name = 'AuditLogError';
}

/**
 * Opens what a process of the gateway has, whether it serves itself, is the primary or a worker.
 * @throws AuditLogError
 */
export async function openParts(setup: AppSetup, options: ProcessOptions): Promise<ProcessParts> {
  const { worker, log, build, clock } = options;
  const audit = await openAuditLog(setup.audit, log);
  const isPrimary = worker === undefined && setup.config.workers !== 1;
  const metrics = new Metrics(build, { withLoop: !isPrimary });
  const merged = new MergedMetrics(metrics.registry);
  const recorder = new FlightRecorder({ clock, worker });
  const flightFiles = new FlightFiles({ recorder, log, clock });
  flightFiles.folder = setup.config.log.flightRecords;
  const uncaught = uncaughtErrors(log, clock, metrics, flightFiles);
  return { ...options, audit, metrics, merged, recorder, flightFiles, uncaught };
}

/**
 * Opens the audit log of this process, or one that a worker has left. `options` undefined: nothing is recorded.
 * @throws AuditLogError
 */
export async function openAuditLog(options: AuditOptions | undefined, log: Log): Promise<Audit> {
  if (options === undefined) return noAudit;
  try {
    return await openAudit(options, { log });
  } catch (error) {
    // `check` cannot detect this: the disk is full, or another gateway writes to the folder.
    const reason = fileMessageOf(error, options.directory);
    const key = errorCode(error) === 'pseudonym-keys' ? 'pseudonyms.keysDirectory' : 'directory';
    throw new AuditLogError(`audit.${key}: ${reason}`, { cause: error });
  }
}

/** Distinct errors whose log lines are throttled. */
const MAX_THROTTLED = 50;

/**
 * Creates the handler of errors that reach no caller. It counts each error and logs it with its stack,
 * equal ones at most once per interval. It never throws, because nothing would catch its errors.
 */
function uncaughtErrors(
  log: Log,
  clock: Clock,
  metrics: Metrics,
  flightFiles: FlightFiles,
): (error: unknown) => void {
  const throttle = new Throttle(clock, MAX_THROTTLED);
  return (error) => {
    try {
      metrics.internalErrors.inc();
      const cause = describeError(error);
      const suppressed = throttle.admit(cause);
      if (suppressed !== undefined) log.error({ suppressed, cause }, 'internal error; the gateway continues');
      flightFiles.write('internal-error');
    } catch {
      // An error here would end the process.
    }
  };
}
