import type { ProxyErrorType } from './proxy-error-type.ts';
import type { RawHeaders } from './raw-headers.ts';

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
