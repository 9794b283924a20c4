import { constants } from 'node:os';
import { errorCode } from '../base/error-code.ts';
import type { ProxyErrorType } from '../base/error-kind.ts';
import { asGatewayError, type ErrorCode, GatewayError } from '../base/errors.ts';

type Known = readonly [code: ErrorCode, detail: string, proxyError: ProxyErrorType];

/** Codes for the step that took longer than `timeouts.connect`: lookup of the name (`dns.TIMEOUT`), TCP, TLS. */
export type TooLate = 'ETIMEOUT' | 'ETIMEDOUT' | 'ERR_TLS_HANDSHAKE_TIMEOUT';
const tooLate = (what: string, type: ProxyErrorType = 'connection_timeout'): Known => [
  'upstream-timeout',
  `${what} (timeouts.connect).`,
  type,
];
const NO_ROUTE: Known = [
  'upstream-unreachable',
  'There is no route to the upstream.',
  'destination_ip_unroutable',
];
/** Where the system chooses the local address: all of its ports are in use, or there is none for IPv6. */
export const NO_PORT = 'This host has no free port, or no address of its own, to connect from.';

/** Names are looked up for the family of the local address only. */
export function otherFamily(peer: string): string {
  return `DNS has no address for the name of the ${peer} that egress.localAddress can reach: one is IPv4, the other IPv6.`;
}

/** Codes of connections that were not made, each with the gateway's error for it. */
const KNOWN: ReadonlyMap<string, Known> = new Map([
  ['ETIMEOUT', tooLate('DNS took too long to answer for the name of the upstream', 'dns_timeout')],
  ['ETIMEDOUT', tooLate('The upstream took too long to connect')],
  ['ERR_TLS_HANDSHAKE_TIMEOUT', tooLate('The upstream accepted the connection and took too long for TLS')],
  ['ENOTFOUND', ['upstream-unreachable', 'DNS does not know the name of the upstream.', 'dns_error']],
  ['EAI_ADDRFAMILY', ['upstream-unreachable', otherFamily('upstream'), 'dns_error']],
  // Either no name server responded, or one could not resolve it: the system does not distinguish them.
  ['EAI_AGAIN', ['upstream-unreachable', 'DNS did not answer for the name of the upstream.', 'dns_error']],
  ['ECONNREFUSED', ['upstream-unreachable', 'The upstream refused the connection.', 'connection_refused']],
  ['ENETUNREACH', NO_ROUTE],
  ['EHOSTUNREACH', NO_ROUTE],
  ['EADDRNOTAVAIL', ['upstream-unreachable', NO_PORT, 'destination_unavailable']],
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
/** System errors that say what this host lacks, whatever the upstream does; EADDRINUSE: a free port on the local address. */
export const LACKING: ReadonlySet<string> = new Set([
  'EADDRINUSE',
  'EMFILE',
  'ENFILE',
  'ENOBUFS',
  'ENOMEM',
  'ENOSPC',
]);

/**
 * Translates an error of a connection, a connector or a tunnel for the client; the error itself goes along as the
 * cause, for the log. An error that comes neither from the upstream nor from the network is the gateway's own:
 * `internal-error`. For errors that an exchange ended with, and for no others.
 */
export function upstreamError(error: unknown): GatewayError {
  if (error instanceof GatewayError) return error;
  const code = errorCode(error);
  const found = KNOWN.get(code);
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

/** True if this host lacks something, so that nothing is known of the upstream. */
export function isLackOfHost(error: unknown): boolean {
  return error instanceof GatewayError && LACKING.has(errorCode(error.cause));
}

/** True if the connection broke, so that nothing is known of what became of the request. */
export function isConnectionLost(error: unknown): boolean {
  const code = errorCode(error);
  return code === 'ECONNRESET' || code === 'EPIPE';
}

/** The error of a connection that broke while the body of a request was being sent. */
export function brokenInBody(cause: unknown): GatewayError {
  return new GatewayError(
    'upstream-unreachable',
    'The upstream broke off the connection while the body of the request was being sent: it may have refused the body.',
    cause,
    { proxyError: 'connection_terminated' },
  );
}

/** The error of a connection from an address that this host does not have. */
export function addressMissing(cause: unknown): GatewayError {
  return new GatewayError(
    'upstream-unreachable',
    'This host does not have the address that requests to this upstream leave from (egress.localAddress). Add it to an interface, or correct it.',
    cause,
    { proxyError: 'proxy_configuration_error' },
  );
}

/** True if no connection was made since this host has no local address or port for it; nothing was sent. */
export function isAddressMissing(error: unknown): boolean {
  return error instanceof GatewayError && errorCode(error.cause) === 'EADDRNOTAVAIL';
}

/** The error of a connection that the upstream ended without a reset, but too early. */
export function connectionEnded(): Error {
  return Object.assign(new Error('The upstream ended the connection.'), { code: 'ECONNRESET' });
}

/** A TLS connection that did not come about. */
interface TlsFault {
  readonly name: TlsFaultName;
  /** The defect of the peer, as in "its certificate …". */
  readonly what: string;
  /** One sentence without the stop. */
  readonly advice: string;
}

const faults = {
  expired: {
    what: 'its certificate has expired',
    advice: 'Ask its operator to renew it, and check the clock of this machine',
  },
  'not-yet-valid': {
    what: 'its certificate is not valid yet',
    advice: 'Check the clock of this machine, or ask its operator',
  },
  'unknown-authority': {
    what: 'its certificate comes from an authority that is not trusted here',
    advice: 'Name that authority in caFile',
  },
  'chain-incomplete': {
    what: 'it sent no certificate of the authority that issued its own, and that authority is not trusted here',
    advice: 'If that is an intermediate one, ask its operator to send it, too; otherwise add it to caFile',
  },
  'root-missing': { what: 'the root of its chain is not trusted here', advice: 'Add the root to caFile' },
  'wrong-host': {
    what: 'its certificate is for another host',
    advice: 'Check the host, or name the one of the certificate in serverName',
  },
  revoked: { what: 'its certificate was revoked', advice: 'Ask its operator' },
  'too-old': {
    what: 'it supports no version of TLS that is accepted here',
    advice: 'Ask its operator for a newer version, or lower minVersion',
  },
  'not-tls': { what: 'it does not speak TLS', advice: 'Check scheme and port' },
  'certificate-wanted': {
    what: 'it requires a client certificate, and none that it accepts was sent',
    advice: 'Give certFile and keyFile, or ask its operator which certificate it accepts',
  },
  'broken-off': {
    what: 'it aborted the handshake',
    advice:
      'It accepts none of the ciphers, or requires a client certificate (certFile, keyFile): ask its operator',
  },
  'invalid-certificate': { what: 'its certificate is not valid', advice: 'Ask its operator' },
  other: { what: 'its certificate or protocol version is not acceptable', advice: 'Ask its operator' },
} as const satisfies Record<string, Omit<TlsFault, 'name'>>;

export type TlsFaultName = keyof typeof faults;

/** Codes of Node and OpenSSL. */
const names: ReadonlyMap<string, TlsFaultName> = new Map([
  ['CERT_HAS_EXPIRED', 'expired'],
  ['CERT_NOT_YET_VALID', 'not-yet-valid'],
  ['ERR_TLS_CERT_ALTNAME_INVALID', 'wrong-host'],
  ['HOSTNAME_MISMATCH', 'wrong-host'],
  ['UNABLE_TO_VERIFY_LEAF_SIGNATURE', 'chain-incomplete'],
  ['UNABLE_TO_GET_ISSUER_CERT', 'root-missing'],
  ['UNABLE_TO_GET_ISSUER_CERT_LOCALLY', 'unknown-authority'],
  ['DEPTH_ZERO_SELF_SIGNED_CERT', 'unknown-authority'],
  ['SELF_SIGNED_CERT_IN_CHAIN', 'unknown-authority'],
  ['CERT_UNTRUSTED', 'unknown-authority'],
  ['CERT_REVOKED', 'revoked'],
  ['ERR_SSL_TLSV1_ALERT_PROTOCOL_VERSION', 'too-old'],
  ['ERR_SSL_UNSUPPORTED_PROTOCOL', 'too-old'],
  ['ERR_SSL_WRONG_VERSION_NUMBER', 'not-tls'],
  ['ERR_SSL_PACKET_LENGTH_TOO_LONG', 'not-tls'],
  ['ERR_SSL_HTTP_REQUEST', 'not-tls'],
  ['ERR_SSL_TLSV13_ALERT_CERTIFICATE_REQUIRED', 'certificate-wanted'],
  ['ERR_SSL_TLSV1_ALERT_UNKNOWN_CA', 'certificate-wanted'],
  ['ERR_SSL_SSLV3_ALERT_BAD_CERTIFICATE', 'certificate-wanted'],
  ['ERR_SSL_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE', 'certificate-wanted'],
  ['ERR_SSL_SSLV3_ALERT_CERTIFICATE_EXPIRED', 'certificate-wanted'],
  ['ERR_SSL_SSLV3_ALERT_CERTIFICATE_REVOKED', 'certificate-wanted'],
  ['ERR_SSL_SSLV3_ALERT_CERTIFICATE_UNKNOWN', 'certificate-wanted'],
  // Up to TLS 1.2 a server that wants a certificate says no more than this.
  ['ERR_SSL_SSLV3_ALERT_HANDSHAKE_FAILURE', 'broken-off'],
]);

/** Explains the code of a TLS error; undefined: the code is not about TLS. */
export function tlsFault(code: string): TlsFault | undefined {
  // OpenSSL renamed the alerts that SSLv3 had in 3.5.
  const known = names.get(code.replace('_SSL/TLS_ALERT_', '_SSLV3_ALERT_'));
  const name = known ?? (isTls(code) ? otherwise(code) : undefined);
  return name && { name, ...faults[name] };
}

/** Why the peer cannot be trusted, as "its certificate …. What to do", without the stop. */
export function whyNoTls(code: string): string | undefined {
  const fault = tlsFault(code);
  return fault && `${fault.what}. ${fault.advice}`;
}

/** The error type of RFC 9209 for the code of a TLS error. */
export function tlsProxyError(code: string): ProxyErrorType {
  if (code.includes('_ALERT_')) return 'tls_alert_received';
  const name = tlsFault(code)?.name;
  return name !== undefined && OF_CERTIFICATE.has(name) ? 'tls_certificate_error' : 'tls_protocol_error';
}

/** Faults of the certificate of the peer. */
const OF_CERTIFICATE: ReadonlySet<TlsFaultName> = new Set([
  'expired',
  'not-yet-valid',
  'unknown-authority',
  'chain-incomplete',
  'root-missing',
  'wrong-host',
  'revoked',
  'invalid-certificate',
]);

function otherwise(code: string): TlsFaultName {
  return code.startsWith('CERT_') || code.startsWith('CRL_') || code.startsWith('UNABLE_TO_')
    ? 'invalid-certificate'
    : 'other';
}

function isTls(code: string): boolean {
  return (
    code.startsWith('ERR_TLS_') ||
    code.startsWith('ERR_SSL_') ||
    code.startsWith('CERT_') ||
    code.startsWith('CRL_') ||
    code.startsWith('UNABLE_TO_') ||
    code === 'EPROTO'
  );
}

/**
 * A client has `own` requests here, and may have no more. Like the others, it has the expected wait for a connection, in
 * milliseconds, as its Retry-After.
 */
export function tooManyRequests(own: number, expectedWait: number): GatewayError {
  return overloaded(
    `This client has ${own} requests on connections to this upstream or waiting for one, and may have no more (connections). Send fewer at a time and try again later. Raise connections if the upstream allows more.`,
    expectedWait,
  );
}

/** A request would have to wait for longer than `longest` milliseconds. */
export function waitTooLong(expectedWait: number, longest: number): GatewayError {
  return overloaded(
    `A connection to this upstream is expected to be free in ${Math.ceil(expectedWait)} ms, and requests wait for ${longest} ms at most (timeouts.response). ${REMEDY}`,
    expectedWait,
  );
}

/** A request has waited for longer than `longest` milliseconds. */
export function waitedTooLong(longest: number, expectedWait: number): GatewayError {
  return overloaded(
    `No connection to this upstream became free for this request within ${longest} ms (timeouts.response). ${REMEDY}`,
    expectedWait,
  );
}

/** The client holds more connections than `share`, and this exchange waited for it while other clients waited. */
export function tooSlowForItsShare(share: number): GatewayError {
  return overloaded(
    `The client was slow to send or to read, and has more than ${share} requests on connections to this upstream, while other clients wait for one (connections). Send fewer slow requests at a time.`,
    0,
  );
}

const REMEDY = 'Try again later. Find out why the upstream is slow, or raise connections if it allows more.';

function overloaded(detail: string, expectedWait: number): GatewayError {
  return new GatewayError('overloaded', detail, undefined, {
    retryAfter: Math.max(1, Math.ceil(expectedWait / 1000)),
  });
}
