const EXPIRED =
  'its certificate has expired. Ask its operator to renew it, and check the clock of this machine';
const UNKNOWN_AUTHORITY =
  'its certificate comes from an authority that is not trusted here. Name that authority in caFile';
const WRONG_HOST =
  'its certificate is for another host. Check the host, or name the one of the certificate in serverName';
const TOO_OLD =
  'it speaks no version of TLS that is accepted here. Ask its operator for a newer one, or lower minVersion';
const NOT_TLS = 'what it answers is not TLS. Check scheme and port';
const CERTIFICATE_WANTED =
  'it wants a client certificate, and none was shown or not one that it accepts. Give certFile and keyFile, or ask its operator which certificate it accepts';
const BROKEN_CERTIFICATE = 'its certificate is not valid. Ask its operator';

/** Codes of Node and OpenSSL for a TLS connection that did not come about, and what they mean. */
const reasons: ReadonlyMap<string, string> = new Map([
  ['CERT_HAS_EXPIRED', EXPIRED],
  [
    'CERT_NOT_YET_VALID',
    'its certificate is not valid yet. Check the clock of this machine, or ask its operator',
  ],
  ['ERR_TLS_CERT_ALTNAME_INVALID', WRONG_HOST],
  ['HOSTNAME_MISMATCH', WRONG_HOST],
  ['UNABLE_TO_VERIFY_LEAF_SIGNATURE', UNKNOWN_AUTHORITY],
  ['UNABLE_TO_GET_ISSUER_CERT', UNKNOWN_AUTHORITY],
  ['UNABLE_TO_GET_ISSUER_CERT_LOCALLY', UNKNOWN_AUTHORITY],
  ['DEPTH_ZERO_SELF_SIGNED_CERT', UNKNOWN_AUTHORITY],
  ['SELF_SIGNED_CERT_IN_CHAIN', UNKNOWN_AUTHORITY],
  ['CERT_UNTRUSTED', UNKNOWN_AUTHORITY],
  ['CERT_REVOKED', 'its certificate was revoked. Ask its operator'],
  ['ERR_SSL_TLSV1_ALERT_PROTOCOL_VERSION', TOO_OLD],
  ['ERR_SSL_UNSUPPORTED_PROTOCOL', TOO_OLD],
  ['ERR_SSL_WRONG_VERSION_NUMBER', NOT_TLS],
  ['ERR_SSL_PACKET_LENGTH_TOO_LONG', NOT_TLS],
  ['ERR_SSL_HTTP_REQUEST', NOT_TLS],
  ['ERR_SSL_TLSV13_ALERT_CERTIFICATE_REQUIRED', CERTIFICATE_WANTED],
  ['ERR_SSL_TLSV1_ALERT_UNKNOWN_CA', CERTIFICATE_WANTED],
  ['ERR_SSL_SSLV3_ALERT_BAD_CERTIFICATE', CERTIFICATE_WANTED],
  ['ERR_SSL_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE', CERTIFICATE_WANTED],
  ['ERR_SSL_SSLV3_ALERT_CERTIFICATE_EXPIRED', CERTIFICATE_WANTED],
  ['ERR_SSL_SSLV3_ALERT_CERTIFICATE_REVOKED', CERTIFICATE_WANTED],
  ['ERR_SSL_SSLV3_ALERT_CERTIFICATE_UNKNOWN', CERTIFICATE_WANTED],
  // Up to TLS 1.2 a server that wants a certificate says no more than this.
  [
    'ERR_SSL_SSLV3_ALERT_HANDSHAKE_FAILURE',
    'it broke the handshake off: it accepts none of the ciphers offered, or wants a client certificate (certFile, keyFile)',
  ],
]);

/**
 * Why there is no TLS connection to a peer that can be trusted, as "… : its certificate …. What to do.", without
 * the stop; undefined: the code is not about TLS.
 */
export function whyNoTls(code: string): string | undefined {
  // OpenSSL renamed the alerts that SSLv3 had in 3.5.
  const known = reasons.get(code.replace('_SSL/TLS_ALERT_', '_SSLV3_ALERT_'));
  return known ?? (isTls(code) ? otherwise(code) : undefined);
}

function otherwise(code: string): string {
  return code.startsWith('CERT_') || code.startsWith('CRL_') || code.startsWith('UNABLE_TO_')
    ? BROKEN_CERTIFICATE
    : 'its certificate or protocol version is not acceptable';
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
