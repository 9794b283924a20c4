import { errorCode } from '../base/error-code.ts';
import { GatewayError } from '../base/errors.ts';
import type { ProxyErrorType } from '../base/proxy-error-type.ts';
import { addressMissing } from './egress.ts';
import { networkProxyError } from './network-error.ts';
import { tlsProxyError, whyNoTls } from './tls-errors.ts';

/** An error of the proxy, not of the upstream. */
export class ProxyError extends GatewayError {}

const known: ReadonlyMap<string, readonly [detail: string, proxyError: ProxyErrorType]> = new Map([
  ['ENOTFOUND', ['DNS does not know the name of the proxy (egress.proxy.url).', 'dns_error']],
  ['EAI_AGAIN', ['DNS did not answer for the name of the proxy (egress.proxy.url).', 'dns_error']],
  [
    'ECONNREFUSED',
    [
      'The proxy refused the connection (egress.proxy.url). Check host and port, and whether it runs.',
      'connection_refused',
    ],
  ],
]);

/** Translates an error of the connection to the proxy. */
export function proxyError(error: unknown): GatewayError {
  if (error instanceof GatewayError) return error;
  const code = errorCode(error);
  if (code === 'EADDRNOTAVAIL') return addressMissing(error);
  const untrusted = whyNoTls(code);
  if (untrusted !== undefined) {
    return unreachable(
      `The TLS connection to the proxy cannot be trusted: ${untrusted}.`,
      error,
      tlsProxyError(code),
    );
  }
  if (code.startsWith('HPE_')) {
    return unreachable(
      'The proxy does not speak HTTP/1.1. Check scheme and port of egress.proxy.url.',
      error,
    );
  }
  const [detail, type] = known.get(code) ?? [
    'The connection to the proxy broke (egress.proxy).',
    networkProxyError(code),
  ];
  return unreachable(detail, error, type);
}

/** No tunnel within `timeouts.connect`. */
export function proxyTooSlow(): GatewayError {
  return unreachable(
    'The proxy took too long to connect to the upstream (timeouts.connect).',
    undefined,
    'connection_timeout',
  );
}

/** For a response to CONNECT that is neither 2xx nor 407. */
export function proxyRefuses(status: number): GatewayError {
  if (status === 403) {
    return unreachable(
      'The proxy does not allow connections to this upstream: it answered CONNECT with 403. Ask its operator.',
    );
  }
  if (status >= 500) {
    return unreachable(`The proxy did not reach the upstream: it answered CONNECT with ${status}.`);
  }
  return unreachable(`The proxy makes no connection to the upstream: it answered CONNECT with ${status}.`);
}

/** A 407, and no credential is configured for the proxy. */
export function noCredential(): GatewayError {
  return unreachable(
    'The proxy asks for authentication, and no credential is configured for it: name one in egress.proxy.credential.',
  );
}

/** A challenge that a stored hash cannot answer. */
export function passwordNeeded(): GatewayError {
  return unreachable(
    'The hashes of the credential (ha1) do not fit what the proxy asks for: another realm, another algorithm, or Basic. Give the password instead, or the right hash.',
  );
}

/** A 407 with Digest that may not be answered; Basic beside it would give the password away instead. */
export function weakProxyChallenge(): GatewayError {
  return unreachable(
    'The proxy offers no Digest challenge with qop and an algorithm that digest.algorithms allows. Allow its algorithm there, or ask its operator for another one, or for qop.',
  );
}

/** A 407 with neither Digest nor Basic. */
export function unusableProxyChallenge(): GatewayError {
  return unreachable(
    'The proxy asks for an authentication that is neither Digest nor Basic. Ask its operator.',
  );
}

/** A 407 on a connection that others can read (RFC 7616 §5.1, RFC 7617 §4). */
export function plaintextNotAllowed(): GatewayError {
  return unreachable(
    'The proxy asks for authentication without TLS, where others can read the password (Basic) or guess it (Digest). Use an https:// url in egress.proxy, or set egress.proxy.allowPlaintext.',
  );
}

/** A 407 to an answer to a fresh challenge, or less than half a minute after one. */
export function proxyRefusesCredential(): GatewayError {
  return unreachable(
    'The proxy refuses its credential (egress.proxy.credential); it is tried again twice a minute. Check user name and password, or ask the operator of the proxy.',
  );
}

/** Each attempt was refused as stale, one with a fresh nonce too. */
export function proxyAlwaysStale(): GatewayError {
  return unreachable(
    'The proxy calls every nonce stale, even one that it has just issued. Ask its operator.',
  );
}

/** A wrong rspauth in Proxy-Authentication-Info (RFC 7615 §4). */
export function proxyProofInvalid(): GatewayError {
  return unreachable(
    'The proxy did not prove that it knows the credential (rspauth). Another server may be answering in its place.',
  );
}

function unreachable(detail: string, cause?: unknown, proxyError?: ProxyErrorType): ProxyError {
  return new ProxyError('upstream-unreachable', detail, cause, { proxyError });
}
