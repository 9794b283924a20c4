import { isNativeError } from 'node:util/types';

/** The code of an error of Node, undici or OpenSSL; empty: it has none. */
export function errorCode(error: unknown): string {
  if (!isNativeError(error) || !('code' in error) || typeof error.code !== 'string') return '';
  // A failed handshake that meets a write has this code; the one that it has otherwise is made of this reason.
  const [, reason] = (error.code === 'EPROTO' && /:SSL routines:[^:]*:([^:]+):/.exec(error.message)) || [];
  return reason === undefined ? error.code : `ERR_SSL_${reason.replaceAll(' ', '_').toUpperCase()}`;
}
