import { isNativeError } from 'node:util/types';
import { errorCode } from './error-code.ts';
import { GatewayError } from './errors.ts';
import { reportError } from './report-error.ts';

/** Names of errors that show a defect of this program, never what another one, a file or a peer did. */
const DEFECTS: ReadonlySet<string> = new Set(['TypeError', 'ReferenceError']);

function isDefect(error: unknown): boolean {
  return !isNativeError(error) || DEFECTS.has(error.name);
}

/** For a wait that its signal ends. @throws any other error */
export function ignoreAbort(error: unknown): undefined {
  if (!isNativeError(error) || error.name !== 'AbortError') throw error;
}

/** For a file that need not be there. @throws any error but that there is none */
export function ignoreAbsent(error: unknown): undefined {
  if (errorCode(error) !== 'ENOENT') throw error;
}

/** For a file that need not be readable. @throws any error that is not of the system */
export function ignoreSystemError(error: unknown): undefined {
  if (isDefect(error) || errorCode(error) === '') throw error;
}

/** For a caller that goes on without what failed at another program or a disk. A defect of this program is reported. */
export function reportDefect(error: unknown): undefined {
  if (isDefect(error)) reportError(error);
}

/** Does something that may fail at another program, which reports that itself; undefined: it failed. */
export async function unlessFailed<T>(work: () => Promise<T>): Promise<T | undefined> {
  try {
    return await work();
  } catch (error) {
    return reportDefect(error);
  }
}

/**
 * Returns the error of a request of the gateway's own, if it says something of the upstream.
 * @throws any other error: it shows a defect of the gateway
 */
export function expectGatewayError(error: unknown): GatewayError {
  if (error instanceof GatewayError && error.code !== 'internal-error') return error;
  throw error;
}
