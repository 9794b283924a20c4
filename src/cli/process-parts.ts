import { AuditLogError, openParts, type ProcessParts } from '../app/compose.ts';
import { BufferGc } from '../base/buffer-gc.ts';
import { monotonicClock } from '../base/clock.ts';
import { createLog, type Log } from '../base/log.ts';
import type { AppSetup } from '../setup/setup.ts';
import { CommandError, type Io, packageVersion } from './io.ts';
import { startTracing } from './tracing.ts';

interface ThisProcess extends ProcessParts {
  /** Sends the last traces and stops the SDK. */
  readonly stopTracing: () => Promise<void>;
}

/**
 * Creates the parts of this process, which from then on outlives errors that reach no caller. `worker`: its number
 * for the log; undefined: it is no worker.
 * @throws CommandError if the audit log cannot be written
 */
export async function processParts(io: Io, setup: AppSetup, worker?: number): Promise<ThisProcess> {
  const log = createLog(io.stderr, worker === undefined ? {} : { worker });
  log.level = setup.config.log.level;
  logWarnings(log);
  const build = { version: await packageVersion(), node: process.version };
  const { tracing, stop: stopTracing } = await startTracing(io.env, build.version, log);
  const options = { worker, log, build, clock: monotonicClock, tracing, bufferGc: new BufferGc() };
  const parts = await openParts(setup, options).catch((error) => {
    throw error instanceof AuditLogError ? new CommandError(2, error.message, error) : error;
  });
  // A request shares only counters, nonces and the audit log with others, and these are consistent between any two
  // steps; an exit would abort every other request.
  process.on('uncaughtException', parts.uncaught);
  process.on('unhandledRejection', parts.uncaught);
  return { ...parts, stopTracing };
}

/** Logs warnings of Node.js, which it would print to stderr in a format of its own. */
function logWarnings(log: Log): void {
  process.removeAllListeners('warning');
  process.on('warning', ({ name, message }) => log.warn({ name }, message));
}
