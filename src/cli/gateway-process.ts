import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { isNativeError } from 'node:util/types';
import { App, type AppDeps } from '../app/app.ts';
import { type Audit, type AuditOptions, type AuditSink, noAudit } from '../audit/audit.ts';
import { openAudit } from '../audit/journal/file-audit.ts';
import { auditKeys } from '../audit/keys.ts';
import { RedisStream } from '../audit/stream/redis-stream.ts';
import { StreamSink } from '../audit/stream/stream-sink.ts';
import { monotonicClock } from '../base/clock.ts';
import { createLog, type Log } from '../base/log.ts';
import type { RedisOptions } from '../redis/connection.ts';
import type { AppSetup } from '../setup/setup.ts';
import { bufferGc } from './buffer-gc.ts';
import { CommandError } from './command-error.ts';
import { processContext } from './process-context.ts';
import { systemdOf } from './systemd.ts';
import { startTracing } from './tracing.ts';
import { packageVersion } from './version.ts';

export interface GatewayProcess {
  readonly app: App;
  readonly log: Log;
  /** Sends the last traces and stops the SDK. */
  readonly stopTracing: () => Promise<void>;
}

/** Creates the gateway of this process, with a log on stderr. */
export async function gatewayProcess(
  setup: AppSetup,
  reloading: Pick<AppDeps, 'source' | 'watchFile'> = {},
): Promise<GatewayProcess> {
  const log = createLog(process.stderr.isTTY);
  const build = { version: await packageVersion(), node: process.version };
  const { tracing, stop: stopTracing } = await startTracing(process.env, build.version, log);
  const audit = await auditFor(setup.audit, setup.redis, log);
  // dist/ is two folders up from src/cli/ in a checkout, and from dist/cli/ in the package.
  const consoleFolder = fileURLToPath(new URL('../../dist/console', import.meta.url));
  const app = new App(setup, {
    clock: monotonicClock,
    log,
    build,
    bufferGc: bufferGc(),
    uid: processContext().uid,
    serviceManager: systemdOf(process.env, log),
    audit,
    tracing,
    consoleFolder,
    ...reloading,
  });
  keepServing(app);
  return { app, log, stopTracing };
}

/**
 * Keeps the process running after an error that reached no caller. A request shares only counters, nonces
 * and the audit log with others, and these are consistent between any two steps; an exit would abort every
 * other request.
 */
function keepServing(app: App): void {
  process.on('uncaughtException', (error) => app.uncaught(error));
  process.on('unhandledRejection', (reason) => app.uncaught(reason));
}

async function auditFor(
  options: AuditOptions | undefined,
  redis: RedisOptions | undefined,
  log: Log,
): Promise<Audit> {
  if (options === undefined) {
    log.warn('no audit section in the configuration; nothing is recorded');
    return noAudit;
  }
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

/** Formats an address as a URL. */
export function urlOf(
  { address, port }: { address: string; port: number },
  scheme: 'http' | 'https' = 'http',
): string {
  return `${scheme}://${address.includes(':') ? `[${address}]` : address}:${port}`;
}
