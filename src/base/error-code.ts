import { isNativeError } from 'node:util/types';

/** Returns the code of an error of Node, undici or OpenSSL, such as ENOENT; empty if it has none. */
export function errorCode(error: unknown): string {
  if (!isNativeError(error) || !('code' in error) || typeof error.code !== 'string') return '';
  // A failed TLS handshake that meets a write has the code EPROTO; its usual code is made of this reason.
  const [, reason] = (error.code === 'EPROTO' && /:SSL routines:[^:]*:([^:]+):/.exec(error.message)) || [];
  return reason === undefined ? error.code : `ERR_SSL_${reason.replaceAll(' ', '_').toUpperCase()}`;
}

/** Returns the message of an error, or the text of anything else that was thrown. */
export function messageOf(error: unknown): string {
  return isNativeError(error) ? error.message : String(error);
}
