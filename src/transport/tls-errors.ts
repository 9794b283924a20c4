import type { ProxyErrorType } from '../base/proxy-error-type.ts';

/** A TLS connection that did not come about. */
export interface TlsFault {
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
  ['UNABLE_TO_VERIFY_LEAF_SIGNATURE', 'unknown-authority'],
  ['UNABLE_TO_GET_ISSUER_CERT', 'unknown-authority'],
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
