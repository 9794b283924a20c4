import { isNativeError } from 'node:util/types';

/** Returns the code of a Node error, such as ENOENT; empty if it has none. */
export function errorCode(error: unknown): string {
  return isNativeError(error) && 'code' in error && typeof error.code === 'string' ? error.code : '';
}
