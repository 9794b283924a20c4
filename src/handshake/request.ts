import type { Cancellation } from '../base/cancellation.ts';
import type { RawHeaders } from '../base/raw-headers.ts';
import type { TracedWork } from '../tracing/tracing.ts';
import type { ExchangeOptions } from './exchange.ts';

/** RFC 9110 §9.2.2: only these may be sent again when nothing is known of the first. */
export const IDEMPOTENT: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS', 'TRACE', 'PUT', 'DELETE']);

/** A request that is to be authenticated, its body received as far as it can be kept. */
export interface UpstreamRequest extends ExchangeOptions {
  readonly method: string;
  /** The request target, byte for byte. */
  readonly target: string;
  readonly headers: RawHeaders;
  readonly body: RequestBody;
  readonly cancellation: Cancellation;
  /** Span of the client request; undefined: not traced. */
  readonly trace: TracedWork | undefined;
}

/** A request body: none; kept in memory, so that it can be sent again after a 401; or streamed, once only. */
export type RequestBody =
  | { readonly kind: 'none' }
  | { readonly kind: 'kept'; readonly bytes: Buffer }
  | {
      readonly kind: 'streamed';
      readonly chunks: AsyncIterable<Buffer>;
      /** True if it would have been kept if there had been memory for it. */
      readonly spilled: boolean;
    };

export const NO_BODY = { kind: 'none' } as const satisfies RequestBody;
