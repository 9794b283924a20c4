import type { RawHeaders } from './raw-headers.ts';

/** Types of RFC 9209 §2.3 that the gateway uses. */
export type ProxyErrorType =
  | 'connection_limit_reached'
  | 'connection_read_timeout'
  | 'connection_refused'
  | 'connection_terminated'
  | 'connection_timeout'
  | 'destination_ip_unroutable'
  | 'destination_not_found'
  | 'destination_unavailable'
  | 'dns_error'
  | 'dns_timeout'
  | 'http_protocol_error'
  | 'http_request_denied'
  | 'http_request_error'
  | 'http_response_header_section_size'
  | 'http_response_incomplete'
  | 'http_response_timeout'
  | 'http_response_trailer_section_size'
  | 'http_response_transfer_coding'
  | 'proxy_configuration_error'
  | 'proxy_internal_error'
  | 'tls_alert_received'
  | 'tls_certificate_error'
  | 'tls_protocol_error';

/** The fixed properties of a code. */
export interface ErrorKind {
  readonly status: number;
  readonly title: string;
  readonly proxyError: ProxyErrorType;
  /** Types that errors of this code have in place of `proxyError` if their cause is known. */
  readonly knownProxyErrors?: readonly ProxyErrorType[];
  /** The cause, for docs/configure/errors.md. */
  readonly cause: string;
  /** The remedy, for docs/configure/errors.md. */
  readonly remedy: string;
  /** Headers of the response, flat: name, value … */
  readonly headers?: RawHeaders;
}

/** Properties of one error that replace those of its code. */
export interface ErrorChange {
  /** Retry-After of the response: a whole number of seconds. */
  readonly retryAfter?: number | undefined;
  /** One of the `knownProxyErrors` of the code. */
  readonly proxyError?: ProxyErrorType | undefined;
  /** Headers of the response, as in `ErrorKind`. */
  readonly headers?: RawHeaders | undefined;
}
