import { constants } from 'node:os';
import { errorCode } from '../base/error-code.ts';
import { asGatewayError, type ErrorCode, GatewayError } from '../base/errors.ts';
import type { ProxyErrorType } from '../base/proxy-error-type.ts';
import { tlsProxyError, whyNoTls } from './tls-errors.ts';

type Known = readonly [code: ErrorCode, detail: string, proxyError: ProxyErrorType];

const TOO_SLOW: Known = [
  'upstream-timeout',
  'The upstream took too long to connect (timeouts.connect).',
  'connection_timeout',
];
const NO_ROUTE: Known = [
  'upstream-unreachable',
  'There is no route to the upstream.',
  'destination_ip_unroutable',
];

/** Codes of connections that were not made, each with the gateway's error for it. */
const known: ReadonlyMap<string, Known> = new Map([
  ['ETIMEDOUT', TOO_SLOW],
  ['ENOTFOUND', ['upstream-unreachable', 'DNS does not know the name of the upstream.', 'dns_error']],
  // Either no name server responded, or one could not find out: the system does not tell them apart.
  ['EAI_AGAIN', ['upstream-unreachable', 'DNS did not answer for the name of the upstream.', 'dns_error']],
  ['ECONNREFUSED', ['upstream-unreachable', 'The upstream refused the connection.', 'connection_refused']],
  ['ENETUNREACH', NO_ROUTE],
  ['EHOSTUNREACH', NO_ROUTE],
]);

/** System errors of a connection that stood. */
const ENDED: ReadonlySet<string> = new Set(['ECONNRESET', 'ECONNABORTED', 'EPIPE']);

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
  if (found !== undefined) return new GatewayError(found[0], found[1], error, { proxyError: found[2] });
  const untrusted = whyNoTls(code);
  if (untrusted !== undefined) {
    return new GatewayError(
      'upstream-tls',
      `The TLS connection to the upstream cannot be trusted: ${untrusted}.`,
      error,
      { proxyError: tlsProxyError(code) },
    );
  }
  if (isOfNetwork(code)) {
    const proxyError = networkProxyError(code);
    return new GatewayError('upstream-unreachable', 'The connection to the upstream broke.', error, {
      proxyError,
    });
  }
  return asGatewayError(error);
}

/** The error type for a code of a network error; undefined: nothing more is known than that there is no connection. */
export function networkProxyError(code: string): ProxyErrorType | undefined {
  if (BROKEN.has(code) || ENDED.has(code)) return 'connection_terminated';
  return code.startsWith('EAI_') ? 'dns_error' : undefined;
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
