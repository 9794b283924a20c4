import { errorCode } from '../base/error-code.ts';
import type { ProxyErrorType } from '../base/error-kind.ts';
import { asGatewayError, GatewayError } from '../base/errors.ts';
import { LACKING, NO_PORT, networkProxyError, otherFamily, tlsProxyError, whyNoTls } from './errors.ts';

/** An error of the proxy, not of the upstream. */
export class ProxyError extends GatewayError {}

const PROXY_KNOWN: ReadonlyMap<string, readonly [detail: string, proxyError: ProxyErrorType]> = new Map([
  ['ENOTFOUND', ['DNS does not know the name of the proxy (egress.proxy.url).', 'dns_error']],
  ['EAI_ADDRFAMILY', [otherFamily('proxy'), 'dns_error']],
  ['EAI_AGAIN', ['DNS did not answer for the name of the proxy (egress.proxy.url).', 'dns_error']],
  ['ETIMEOUT', ['DNS did not answer in time for the name of the proxy (egress.proxy.url).', 'dns_timeout']],
  [
    'ETIMEDOUT',
    [
      'The proxy took too long to accept the connection (timeouts.connect). Check host and port of egress.proxy.url, and the firewalls on the way to it.',
      'connection_timeout',
    ],
  ],
  [
    'ERR_TLS_HANDSHAKE_TIMEOUT',
    ['The proxy took too long for TLS (timeouts.connect).', 'connection_timeout'],
  ],
  [
    'ECONNREFUSED',
    [
      'The proxy refused the connection (egress.proxy.url). Check host and port, and whether it runs.',
      'connection_refused',
    ],
  ],
  ['EADDRNOTAVAIL', [NO_PORT, 'destination_unavailable']],
]);

/** Translates an error of the connection to the proxy. */
export function proxyError(error: unknown): GatewayError {
  if (error instanceof GatewayError) return error;
  const code = errorCode(error);
  if (LACKING.has(code)) return asGatewayError(error);
  const known = PROXY_KNOWN.get(code);
  if (known !== undefined) return unreachable(known[0], error, known[1]);
  const untrusted = whyNoTls(code);
  if (untrusted !== undefined) {
    const why = `The TLS connection to the proxy cannot be trusted: ${untrusted}.`;
    return unreachable(why, error, tlsProxyError(code));
  }
  if (code.startsWith('HPE_')) {
    return unreachable(
      'The proxy does not speak HTTP/1.1. Check scheme and port of egress.proxy.url.',
      error,
    );
  }
  return unreachable('The connection to the proxy broke (egress.proxy).', error, networkProxyError(code));
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
  const what = status >= 500 ? 'did not reach the upstream' : 'makes no connection to the upstream';
  return unreachable(`The proxy ${what}: it answered CONNECT with ${status}.`);
}

/** Why a 407 of a proxy leads to no tunnel. */
const PROXY_REFUSALS = {
  'no-credential':
    'The proxy asks for authentication, and no credential is configured for it: name one in egress.proxy.credential.',
  // A stored hash cannot answer the challenge.
  'password-needed':
    'The hashes of the credential (ha1) do not fit what the proxy asks for: another realm, another algorithm, or Basic. Give the password instead, or the right hash.',
  // Basic beside such a Digest would give the password away instead.
  'weak-challenge':
    'The proxy offers no Digest challenge with qop and an algorithm that digest.algorithms allows. Allow its algorithm there, or ask its operator for another one, or for qop.',
  'unusable-challenge':
    'The proxy asks for an authentication that is neither Digest nor Basic. Ask its operator.',
  // RFC 7616 §5.1, RFC 7617 §4.
  plaintext:
    'The proxy asks for authentication without TLS, where others can read the password (Basic) or guess it (Digest). Use an https:// url in egress.proxy, or set egress.proxy.allowPlaintext.',
  // It refused an answer to a fresh challenge, less than half a minute ago.
  'credential-refused':
    'The proxy refuses its credential (egress.proxy.credential); it is tried again twice a minute. Check user name and password, or ask the operator of the proxy.',
  'always-stale': 'The proxy calls every nonce stale, even one that it has just issued. Ask its operator.',
  // RFC 7615 §4.
  'proof-invalid':
    'The proxy did not prove that it knows the credential (rspauth). Another server may be answering in its place.',
} as const;

export type ProxyRefusal = keyof typeof PROXY_REFUSALS;

/** The error for a proxy whose 407 leads to no tunnel. */
export function proxyAuthenticationError(refusal: ProxyRefusal): ProxyError {
  return unreachable(PROXY_REFUSALS[refusal]);
}

function unreachable(detail: string, cause?: unknown, proxyError?: ProxyErrorType): ProxyError {
  return new ProxyError('upstream-unreachable', detail, cause, { proxyError });
}
