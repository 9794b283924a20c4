import { isNativeError } from 'node:util/types';
import { CommanderError } from 'commander';
import { WorkerError } from '../app/worker.ts';
import { BrokenLinkError } from '../audit/replica-name.ts';
import { errorCode, fileErrorText } from '../base/error-code.ts';
import { createLog } from '../base/log.ts';
import { PortError } from '../base/open-port.ts';
import { describeError } from '../base/report-error.ts';
import { ConfigError, formatIssue } from '../config/issues.ts';
import { CommandError, type ExitStatus, type Io, note } from './io.ts';

/** Returns the exit status of a command that failed with this error. */
export function statusOf(error: unknown): ExitStatus {
  if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : 2;
  if (error instanceof ConfigError) return 2;
  if (error instanceof CommandError) return error.status;
  return 1;
}

/** Prints an error to stderr as text for people, unless commander did. */
export function printError(io: Io, error: unknown): void {
  if (error instanceof CommanderError) return;
  note(io, textOf(error) ?? (isNativeError(error) ? (error.stack ?? error.message) : String(error)));
}

/** Logs an error that ends the process, in the format of its other lines: each issue of a configuration is one. */
export function logError(io: Io, error: unknown, command: string): void {
  const log = createLog(io.stderr);
  if (error instanceof CommanderError) {
    if (error.exitCode !== 0)
      log.error(`${error.message.replace(/^error: /, '')} (see digest-gateway ${command} --help)`);
  } else if (error instanceof ConfigError) {
    for (const issue of error.issues) log.error(formatIssue(issue));
  } else {
    const text = textOf(error);
    if (text === undefined) log.error({ cause: describeError(error) }, 'internal error; the process ends');
    else log.error(text);
  }
}

/** Returns the message of an error that people can act on; undefined for an unexpected one. */
function textOf(error: unknown): string | undefined {
  if (!isNativeError(error)) return undefined;
  const isExpected = [ConfigError, PortError, WorkerError, CommandError, BrokenLinkError].some(
    (type) => error instanceof type,
  );
  if (isExpected) return error.message;
  if (errorCode(error) !== 'EADDRINUSE') return fileErrorText(error);
  return `${error.message}. Another program listens there: stop it, choose another port in the configuration, or run demo --free-ports.`;
}
