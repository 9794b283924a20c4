import { constants } from 'node:os';
import { errorCode } from '../base/error-code.ts';
import { asGatewayError, type ErrorCode, GatewayError } from '../base/errors.ts';
import { whyNoTls } from './tls-errors.ts';

/** Codes of connections that were not made, each with the gateway's code and what the client is told. */
const known: ReadonlyMap<string, readonly [ErrorCode, string]> = new Map([
  [
    'UND_ERR_CONNECT_TIMEOUT',
    ['upstream-timeout', 'The upstream took too long to connect (timeouts.connect).'],
  ],
  ['ETIMEDOUT', ['upstream-timeout', 'The upstream took too long to connect (timeouts.connect).']],
  ['ENOTFOUND', ['upstream-unreachable', 'DNS does not know the name of the upstream.']],
  ['EAI_AGAIN', ['upstream-unreachable', 'DNS did not answer for the name of the upstream.']],
  ['ECONNREFUSED', ['upstream-unreachable', 'The upstream refused the connection.']],
]);

/** Codes of Node for a connection that ended or was ended. */
const BROKEN: ReadonlySet<string> = new Set([
  'ERR_SOCKET_CLOSED',
  'ERR_SOCKET_CONNECTION_TIMEOUT',
  'ERR_STREAM_DESTROYED',
  'ERR_STREAM_PREMATURE_CLOSE',
]);
/** System errors that say what this host lacks, whatever the upstream does. */
const LACKING: ReadonlySet<string> = new Set(['EMFILE', 'ENFILE', 'ENOBUFS', 'ENOMEM', 'ENOSPC']);

/**
 * Translates an error of a connection, a connector or a tunnel for the client; the error itself goes along as the
 * cause, for the log. An error that comes neither from the upstream nor from the network is the gateway's own:
 * `internal-error`. For errors that an exchange ended with, and for no others.
 */
export function upstreamError(error: unknown): GatewayError {
  if (error instanceof GatewayError) return error;
  const code = errorCode(error);
  const found = known.get(code);
  if (found !== undefined) return new GatewayError(found[0], found[1], error);
  const untrusted = whyNoTls(code);
  if (untrusted !== undefined) {
    return new GatewayError(
      'upstream-tls',
      `The TLS connection to the upstream cannot be trusted: ${untrusted}.`,
      error,
    );
  }
  if (isOfNetwork(code)) {
    return new GatewayError('upstream-unreachable', 'The connection to the upstream broke.', error);
  }
  return asGatewayError(error);
}

function isOfNetwork(code: string): boolean {
  return BROKEN.has(code) || ((code in constants.errno || code.startsWith('EAI_')) && !LACKING.has(code));
}

/** True if the connection broke, so that nothing is known of what became of the request. */
export function isConnectionLost(error: unknown): boolean {
  const code = errorCode(error);
  return code === 'ECONNRESET' || code === 'EPIPE';
}

/** The error of a connection that the upstream ended without a reset, but too early. */
export function connectionEnded(): Error {
  return Object.assign(new Error('The upstream ended the connection.'), { code: 'ECONNRESET' });
}
