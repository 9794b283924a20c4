import type { ErrorChange, ErrorKind, ProxyErrorType } from './error-kind.ts';

/**
 * Every error that a client can receive: its stable code, HTTP status, title, and the error type of RFC
 * 9209 §2.3 for `Proxy-Status`, which one error of a code can replace. This is the only place that maps errors to
 * statuses.
 */
const table = {
  'bad-request': {
    status: 400,
    title: 'Bad request',
    proxyError: 'http_request_error',
    cause:
      'The request is not valid HTTP/1.1, two servers could read it in two ways, or its path, headers or body compete with what a rule depends on. `detail` names the reason.',
    remedy: 'Correct the client. Paths and parameters must be written as the API describes them.',
  },
  'site-required': {
    status: 400,
    title: 'Site required',
    proxyError: 'http_request_error',
    cause:
      'The deployment has sites, and the request names none; with `injectSite`, its client may use several.',
    remedy: 'Send the site once, as the query parameter that `detail` names.',
  },
  'parameter-invalid': {
    status: 400,
    title: 'Parameter invalid',
    proxyError: 'http_request_error',
    cause:
      'A query parameter that is checked is missing, repeated, written so that servers can read it differently, not of the form that the operation lists, or a list with more items than the client may send. Or, while a rule depends on the query, it has more than 256 parameters, or a name that servers read differently. `detail` says which.',
    remedy: 'Correct the parameter, or the operation or `restricted.parameterNames` in the configuration.',
  },
  'client-unknown': {
    status: 401,
    title: 'Client unknown',
    proxyError: 'http_request_denied',
    headers: ['www-authenticate', 'Basic realm="digest-gateway"'],
    cause:
      'The request does not identify a configured client: an address, key, certificate or token is missing or wrong, or comes twice. What is presented and wrong is refused also from an address of a client, and with `anonymous: true`. `detail` lists what the request showed.',
    remedy:
      'Send everything that the configuration lists for the client under `identify`, and no other key, token or certificate. Clients are matched from the top of the list.',
  },
  'client-key-expired': {
    status: 401,
    title: 'Client key expired',
    proxyError: 'http_request_denied',
    headers: ['www-authenticate', 'Basic realm="digest-gateway"'],
    cause:
      'The API key is one of a client, and its time in the configuration (`expires`) is over. `detail` names the key and when it ended; the audit record names client and key.',
    remedy:
      'Give the client another key: `digest-gateway client rotate` makes one. To keep the key, write a later `expires` and reload.',
  },
  'client-forbidden': {
    status: 403,
    title: 'Client forbidden',
    proxyError: 'http_request_denied',
    cause:
      'The client is known, and none of its rules allows this request: its deployment, site, operation, method or parameters.',
    remedy:
      'Add a rule under `allow` of the client. `digest-gateway policy explain` shows which part of which rule fails.',
  },
  'site-unknown': {
    status: 403,
    title: 'Site unknown',
    proxyError: 'http_request_denied',
    cause: 'The site that the request names is not configured for the deployment.',
    remedy: 'Correct the parameter, or add the site under `sites`.',
  },
  'operation-unlisted': {
    status: 403,
    title: 'Operation unlisted',
    proxyError: 'http_request_denied',
    cause: 'The deployment has `unlistedOperations: deny`, and no listed operation has this method and path.',
    remedy: 'Compare the path byte by byte with the operation, or list the operation.',
  },
  'cross-site': {
    status: 403,
    title: 'Cross-site request',
    proxyError: 'http_request_denied',
    cause:
      'A page of another origin (scheme, host and port) made a browser send the request, and the client is known by its address or certificate alone.',
    remedy: 'Give the client an API key or a token. Nothing is to be done if the page has no business here.',
  },
  'no-deployment': {
    status: 404,
    title: 'No deployment',
    proxyError: 'destination_not_found',
    cause: 'No deployment matches the path and host of the request.',
    remedy: 'Check the URL of the client, and `match` in the configuration.',
  },
  'connect-unsupported': {
    status: 405,
    title: 'CONNECT unsupported',
    proxyError: 'http_request_denied',
    headers: ['allow', 'GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS'],
    cause: 'The client asked for a tunnel (CONNECT). The gateway must see a request to authenticate it.',
    remedy:
      'Request the `http://` URL through the gateway as proxy; the gateway uses TLS to the upstream. Set `http_proxy`, not `https_proxy`.',
  },
  'method-unsupported': {
    status: 405,
    title: 'Method unsupported',
    proxyError: 'http_request_denied',
    headers: ['allow', 'GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS'],
    cause:
      'The method is TRACE, or OPTIONS with `Max-Forwards: 0`. A response to TRACE could show the credential.',
    remedy: 'Use another method, or leave `Max-Forwards` out.',
  },
  'request-timeout': {
    status: 408,
    title: 'Request timeout',
    proxyError: 'http_request_error',
    cause:
      'The headers of the request did not arrive within `listen.limits.headersTimeout`, its body did not arrive within `timeouts.total`, or the client sent nothing of the body for `timeouts.idle`, or less than `body.minRate`.',
    remedy: 'Check the network of the client, or raise the limit.',
  },
  'length-required': {
    status: 411,
    title: 'Length required',
    proxyError: 'http_request_error',
    cause:
      'The upstream answered with HTTP/1.0, which has no chunks, and the body of the request has no Content-Length and is not kept whole: it is larger than `body.replayUpTo`, or `listen.limits.bodyMemory` is used up.',
    remedy: 'Send the body with Content-Length, or raise the limit.',
  },
  'body-too-large': {
    status: 413,
    title: 'Body too large',
    proxyError: 'http_request_error',
    cause:
      'The request body is larger than `body.max`, or larger than `body.replayUpTo` while the upstream asks for auth-int, which needs the whole body in memory.',
    remedy: 'Send less, or raise the limit that `detail` names.',
  },
  'target-too-long': {
    status: 414,
    title: 'Target too long',
    proxyError: 'http_request_error',
    cause: 'The request line alone is larger than `listen.limits.headerSize`.',
    remedy: 'Send a shorter URL, or raise the limit.',
  },
  'headers-too-large': {
    status: 431,
    title: 'Headers too large',
    proxyError: 'http_request_error',
    cause: 'Request line and headers together are larger than `listen.limits.headerSize`.',
    remedy: 'Send fewer or shorter headers, or raise the limit.',
  },
  'host-unknown': {
    status: 421,
    title: 'Host unknown',
    proxyError: 'http_request_denied',
    cause: 'The `Host` header is not one of `listen.hosts`.',
    remedy: 'Call the gateway by a listed name, or add the name.',
  },
  'rate-limited': {
    status: 429,
    title: 'Rate limited',
    proxyError: 'http_request_denied',
    cause:
      'A limit of the client or of the deployment is reached. `detail` and the `RateLimit` fields say which one.',
    remedy: 'Wait for the time in `Retry-After`, or raise `limits`.',
  },
  'client-closed': {
    status: 499,
    title: 'Client closed the connection',
    proxyError: 'http_request_error',
    cause:
      'The client closed its connection before it had the whole response. It appears in logs, metrics and the audit log only.',
    remedy: 'If it happens often, compare the timeout of the client with the duration of its requests.',
  },
  'client-timeout': {
    status: 499,
    title: 'Client did not read the response',
    proxyError: 'http_request_error',
    cause:
      'The client read nothing of its response for `timeouts.idle`, or less than `body.minRate`. It appears in logs, metrics and the audit log only.',
    remedy: 'Check the client, or raise `timeouts.idle`, or lower `body.minRate`.',
  },
  'internal-error': {
    status: 500,
    title: 'Internal error',
    proxyError: 'proxy_internal_error',
    cause: 'The gateway failed, by a defect or because its host lacks something, such as file descriptors.',
    remedy: 'Read the log line with the request id; it has the cause and the stack.',
  },
  'not-implemented': {
    status: 501,
    title: 'Not implemented',
    proxyError: 'http_request_error',
    cause:
      'The gateway does not know the method of the request, or a transfer coding that its body has below chunked. The connection ends, since what follows could be read in two ways.',
    remedy: 'Use a registered method, and send the body as it is, or with Content-Encoding.',
  },
  'upgrade-unsupported': {
    status: 501,
    title: 'Upgrade unsupported',
    proxyError: 'http_request_denied',
    cause: 'The client asked for a WebSocket (`Upgrade: websocket`), which the gateway does not carry.',
    remedy:
      'Use plain requests. For a stream of events from the upstream, use server-sent events, and switch off `timeouts.total` of the operation.',
  },
  'upstream-unreachable': {
    status: 502,
    title: 'Upstream unreachable',
    proxyError: 'destination_unavailable',
    knownProxyErrors: [
      'dns_timeout',
      'dns_error',
      'destination_ip_unroutable',
      'connection_refused',
      'connection_timeout',
      'connection_terminated',
      'tls_certificate_error',
      'tls_alert_received',
      'tls_protocol_error',
      'proxy_configuration_error',
    ],
    cause:
      'No connection to the upstream, or it broke: DNS, route, firewall, forward proxy, or `egress.localAddress` is not on this host.',
    remedy: 'Run `digest-gateway doctor`, which distinguishes these.',
  },
  'upstream-tls': {
    status: 502,
    title: 'Upstream TLS failed',
    proxyError: 'tls_protocol_error',
    knownProxyErrors: ['tls_certificate_error', 'tls_alert_received'],
    cause:
      'The TLS connection to the upstream cannot be trusted or did not come about. `detail` says which check failed.',
    remedy:
      'Follow `detail`. Common causes are a missing `tls.caFile`, an expired certificate, and `tls.pinSha256` after a change of key.',
  },
  'upstream-protocol': {
    status: 502,
    title: 'Upstream broke the protocol',
    proxyError: 'http_protocol_error',
    knownProxyErrors: [
      'http_response_incomplete',
      'http_response_header_section_size',
      'http_response_trailer_section_size',
      'http_response_transfer_coding',
    ],
    cause:
      'The upstream sent something that is not valid HTTP/1.1, or refused two authenticated attempts without refusing the credential.',
    remedy:
      'Compare with the response that `curl` gets. Often another program, such as a proxy, answers in its place. If one path only is affected, check whether the account may use it.',
  },
  'upstream-no-digest': {
    status: 502,
    title: 'Upstream offered no usable Digest challenge',
    proxyError: 'http_protocol_error',
    cause: 'The upstream answered 401 without a Digest challenge that may be used.',
    remedy: 'Check `baseUrl` and `digest.algorithms`. Its `nonce` and `opaque` have 4096 characters at most.',
  },
  'upstream-credential-refused': {
    status: 502,
    title: 'Upstream refused the credential',
    proxyError: 'destination_unavailable',
    cause:
      'The upstream refuses user name or password. The gateway tries again at most `digest.attemptsWhenRefused` times a minute.',
    remedy:
      'Correct the secret where the configuration names it; the gateway notices the change. Ask the operator of the upstream whether the account and the address are registered.',
  },
  'upstream-target-refused': {
    status: 502,
    title: 'Upstream refuses this target',
    proxyError: 'destination_unavailable',
    cause:
      'The upstream refuses this target although it accepts the credential: it reads the target differently than it was sent, or the account may not use it. For each client and method, the gateway sends the target at most `digest.attemptsWhenRefused` times a minute, and five such requests of a client to one path. After ten times as many refusals of a client in a minute, only paths that served it meanwhile are sent.',
    remedy: 'Write the target as the API has it, or ask the upstream whether the account may use it.',
  },
  'upstream-proof-invalid': {
    status: 502,
    title: 'Upstream proof invalid',
    proxyError: 'http_protocol_error',
    cause:
      'The upstream did not prove that it knows the credential (`rspauth`), so its response is withheld.',
    remedy: 'Another server may be answering in its place: check `baseUrl`, DNS and `tls`.',
  },
  overloaded: {
    status: 503,
    title: 'Overloaded',
    proxyError: 'connection_limit_reached',
    headers: ['retry-after', '1'],
    cause:
      'More requests wait than `connections` of the deployment can carry: the client has too many, it is slow on more than half of the connections, a connection is not expected within `timeouts.response`, or none became free within it. Or `listen.limits.bodyMemory`, or the part of it that one client may have, is used up. `detail` says which; `Retry-After` is the expected wait.',
    remedy:
      'Retry later. Find out why the upstream is slow, or raise the limit that `detail` names if the upstream and the host allow it.',
  },
  'upstream-paused': {
    status: 503,
    title: 'Upstream paused',
    proxyError: 'destination_unavailable',
    cause:
      'A response of the upstream belongs to an outcome with `pause`, so no requests are sent for that time. `detail` names the outcome.',
    remedy:
      'Wait for the time in `Retry-After`. If the outcome matches responses that it should not, correct `outcomes`; a reload with other outcomes ends the pause.',
  },
  'upstream-circuit-open': {
    status: 503,
    title: 'Upstream circuit open',
    proxyError: 'destination_unavailable',
    headers: ['retry-after', '1'],
    cause:
      'Most of the last exchanges with every address of the upstream failed (`circuit`), the last one of this client too, so no request of it is sent for a while.',
    remedy:
      'Retry after the time in `Retry-After`. The log line of the opened circuit has the last failure; `digest-gateway doctor` names the cause.',
  },
  'credential-unavailable': {
    status: 503,
    title: 'Credential unavailable',
    proxyError: 'proxy_configuration_error',
    headers: ['retry-after', '30'],
    cause:
      'The credential cannot answer the challenge: it has hashes only, and none for the realm or algorithm that the upstream asks for.',
    remedy: 'Add a hash for it, or give the password instead.',
  },
  'audit-unavailable': {
    status: 503,
    title: 'Audit unavailable',
    proxyError: 'proxy_internal_error',
    headers: ['retry-after', '1'],
    cause: 'The audit log cannot be written, and `audit.onFailure` is `refuse`.',
    remedy: 'Free or repair the disk of `audit.directory`; service resumes by itself. See the runbook.',
  },
  draining: {
    status: 503,
    title: 'Draining',
    proxyError: 'destination_unavailable',
    headers: ['retry-after', '5'],
    cause: 'The gateway is shutting down, or ended before the response was whole (`drain.timeout`).',
    remedy: 'Send the request again, to another replica.',
  },
  'identity-unavailable': {
    status: 503,
    title: 'Identity unavailable',
    proxyError: 'proxy_internal_error',
    headers: ['retry-after', '1'],
    cause: 'The key set of a token issuer cannot be fetched, so a Bearer token cannot be checked.',
    remedy: 'Retry. Check `jwt.issuers[].jwksUrl` from the host of the gateway.',
  },
  'upstream-timeout': {
    status: 504,
    title: 'Upstream timeout',
    proxyError: 'http_response_timeout',
    knownProxyErrors: ['dns_timeout', 'connection_timeout', 'connection_read_timeout'],
    cause:
      'The upstream did not connect, answer or continue within one of the limits in `timeouts`. `detail` names the limit.',
    remedy: 'Check the upstream and its duration metrics, or raise the limit.',
  },
} as const satisfies Record<string, ErrorKind>;

export type ErrorCode = keyof typeof table;
const kinds: Readonly<Record<string, ErrorKind>> = table;

/** Returns every code with its properties, ordered by status. */
export function errorKinds(): [ErrorCode, ErrorKind][] {
  return Object.entries(table) as [ErrorCode, ErrorKind][];
}

/** Returns the title of a code in metrics; for an unknown code, the code itself. */
export function titleOf(code: string): string {
  return kinds[code]?.title ?? code;
}

/** Returns the status of responses with a code in metrics; for an unknown code, 500. */
export function statusOfCode(code: string): number {
  return kinds[code]?.status ?? 500;
}

const NO_CHANGE: ErrorChange = {};

/** `detail` is for the client: what happened and what to do, never a secret, nonce or address; `cause` is for the log. */
export class GatewayError extends Error {
  override readonly name = 'GatewayError';
  readonly code: ErrorCode;
  readonly detail: string;
  /** Seconds for the Retry-After of the response; undefined: that of the code, if it has one. */
  readonly retryAfter: number | undefined;
  /** The error type for Proxy-Status. */
  readonly proxyError: ProxyErrorType;
  readonly headers: ErrorKind['headers'];

  constructor(code: ErrorCode, detail: string, cause?: unknown, change: ErrorChange = NO_CHANGE) {
    super(`${code}: ${detail}`, cause === undefined ? undefined : { cause });
    this.code = code;
    this.detail = detail;
    this.retryAfter = change.retryAfter;
    this.proxyError = change.proxyError ?? table[code].proxyError;
    this.headers = change.headers ?? this.kind.headers;
  }

  get kind(): ErrorKind {
    return table[this.code];
  }
}

/** Returns a GatewayError unchanged; wraps any other error as the cause of an `internal-error`. */
export function asGatewayError(error: unknown): GatewayError {
  if (error instanceof GatewayError) return error;
  return new GatewayError('internal-error', 'The gateway failed on this request.', error);
}
