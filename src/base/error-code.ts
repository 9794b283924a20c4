import { isNativeError } from 'node:util/types';

/** The code of an error of Node, such as ENOENT; empty: it has none. */
export function errorCode(error: unknown): string {
  return isNativeError(error) && 'code' in error && typeof error.code === 'string' ? error.code : '';
}
