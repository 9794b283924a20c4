/**
 * Every failure that a client can meet: its stable code, HTTP status, title, and the error type of
 * RFC 9209 §2.3 for `Proxy-Status`. The one table; nothing else maps a failure to a status.
 */
const table = {
  'bad-request': { status: 400, title: 'Bad request', proxyError: 'http_request_error' },
  'site-required': { status: 400, title: 'Site required', proxyError: 'http_request_error' },
  'parameter-invalid': { status: 400, title: 'Parameter invalid', proxyError: 'http_request_error' },
  'client-unknown': {
    status: 401,
    title: 'Client unknown',
    proxyError: 'http_request_denied',
    headers: ['www-authenticate', 'Basic realm="digest-gateway"'],
  },
  'client-forbidden': { status: 403, title: 'Client forbidden', proxyError: 'http_request_denied' },
  'site-unknown': { status: 403, title: 'Site unknown', proxyError: 'http_request_denied' },
  'operation-unlisted': { status: 403, title: 'Operation unlisted', proxyError: 'http_request_denied' },
  'cross-site': { status: 403, title: 'Cross-site request', proxyError: 'http_request_denied' },
  'no-deployment': { status: 404, title: 'No deployment', proxyError: 'destination_not_found' },
  'connect-unsupported': {
    status: 405,
    title: 'CONNECT unsupported',
    proxyError: 'http_request_denied',
    headers: ['allow', 'GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS'],
  },
  'method-unsupported': {
    status: 405,
    title: 'Method unsupported',
    proxyError: 'http_request_denied',
    headers: ['allow', 'GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS'],
  },
  'request-timeout': { status: 408, title: 'Request timeout', proxyError: 'http_request_error' },
  'body-too-large': { status: 413, title: 'Body too large', proxyError: 'http_request_error' },
  'headers-too-large': { status: 431, title: 'Headers too large', proxyError: 'http_request_error' },
  'host-unknown': { status: 421, title: 'Host unknown', proxyError: 'http_request_denied' },
  'rate-limited': { status: 429, title: 'Rate limited', proxyError: 'http_request_denied' },
  'client-closed': { status: 499, title: 'Client closed the connection', proxyError: 'http_request_error' },
  'client-timeout': {
    status: 499,
    title: 'Client did not read the response',
    proxyError: 'http_request_error',
  },
  'internal-error': { status: 500, title: 'Internal error', proxyError: 'proxy_internal_error' },
  'upstream-unreachable': {
    status: 502,
    title: 'Upstream unreachable',
    proxyError: 'destination_unavailable',
  },
  'upstream-tls': { status: 502, title: 'Upstream TLS failed', proxyError: 'tls_protocol_error' },
  'upstream-protocol': {
    status: 502,
    title: 'Upstream broke the protocol',
    proxyError: 'http_protocol_error',
  },
  'upstream-no-digest': {
    status: 502,
    title: 'Upstream offered no usable Digest challenge',
    proxyError: 'http_protocol_error',
  },
  'upstream-credential-refused': {
    status: 502,
    title: 'Upstream refused the credential',
    proxyError: 'destination_unavailable',
  },
  'upstream-proof-invalid': {
    status: 502,
    title: 'Upstream proof invalid',
    proxyError: 'http_protocol_error',
  },
  overloaded: {
    status: 503,
    title: 'Overloaded',
    proxyError: 'connection_limit_reached',
    headers: ['retry-after', '1'],
  },
  'credential-unavailable': {
    status: 503,
    title: 'Credential unavailable',
    proxyError: 'proxy_configuration_error',
    headers: ['retry-after', '30'],
  },
  'audit-unavailable': {
    status: 503,
    title: 'Audit unavailable',
    proxyError: 'proxy_internal_error',
    headers: ['retry-after', '1'],
  },
  draining: {
    status: 503,
    title: 'Draining',
    proxyError: 'destination_unavailable',
    headers: ['retry-after', '5'],
  },
  'identity-unavailable': {
    status: 503,
    title: 'Identity unavailable',
    proxyError: 'proxy_internal_error',
    headers: ['retry-after', '1'],
  },
  'upstream-timeout': { status: 504, title: 'Upstream timeout', proxyError: 'http_response_timeout' },
} as const satisfies Record<string, ErrorKind>;

/** What is fixed for a code. */
export interface ErrorKind {
  readonly status: number;
  readonly title: string;
  readonly proxyError: string;
  /** Headers of the answer, flat: name, value … */
  readonly headers?: readonly string[];
}

export type ErrorCode = keyof typeof table;

/** Every code with what it means, by status. */
export function errorKinds(): [ErrorCode, ErrorKind][] {
  return Object.entries(table) as [ErrorCode, ErrorKind][];
}

/** The title of a code as metrics have it; of one that does not exist, the text itself. */
export function titleOf(code: string): string {
  const kinds: Readonly<Record<string, ErrorKind>> = table;
  return kinds[code]?.title ?? code;
}

/**
 * A failure with a stable code. `detail` is for the client: what happened and what to do, never a
 * secret, a nonce or an upstream's address; `cause` is for the log.
 */
export class GatewayError extends Error {
  override readonly name = 'GatewayError';
  readonly code: ErrorCode;
  readonly detail: string;

  constructor(code: ErrorCode, detail: string, cause?: unknown) {
    super(`${code}: ${detail}`, cause === undefined ? undefined : { cause });
    this.code = code;
    this.detail = detail;
  }

  get kind(): ErrorKind {
    return table[this.code];
  }
}

/** The error itself if it is a GatewayError. Any other is a failure of the gateway's own: `internal-error`, with it as the cause. */
export function asGatewayError(error: unknown): GatewayError {
  if (error instanceof GatewayError) return error;
  return new GatewayError('internal-error', 'The gateway failed on this request.', error);
}
