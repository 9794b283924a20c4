import type { IncomingMessage, OutgoingHttpHeaders } from 'node:http';
import { toXml } from './documents.ts';
import type { RequestBody } from './request-body.ts';

/** Everything an answer is made of, before faults touch it. */
export interface Reply {
  readonly status: number;
  readonly headers: OutgoingHttpHeaders;
  /** A buffer gets its Content-Length; a stream says it itself or goes out chunked. */
  readonly body: Buffer | AsyncIterable<Buffer>;
  /** Sent after a chunked body, once it is through. */
  readonly trailers?: () => Record<string, string>;
  /** Makes a 103 go first: its Link field. */
  readonly earlyLink?: string;
}

/** A request that has passed Digest and the address check. */
export interface Call {
  readonly request: IncomingMessage;
  readonly method: string;
  readonly path: string;
  readonly query: URLSearchParams;
  readonly body: RequestBody;
}

const xml = 'application/xml;charset=UTF-8';

/** A failure as the service words it. */
export function failure(status: number, errorCode: number, message: string): Reply {
  return {
    status,
    headers: { 'content-type': xml, 'x-frame-options': 'DENY' },
    body: failureBody(errorCode, message),
  };
}

/** Refused for now. @param callAt when to come back. */
export function throttled(status: 400 | 429, retryAfterSeconds: number, callAt: Date): Reply {
  const body = failureBody(500, 'Too many calls.', { nextCallTime: callAt.toISOString() });
  const headers = { 'content-type': xml };
  return status === 400
    ? { status, headers, body }
    : { status, headers: { ...headers, 'retry-after': String(retryAfterSeconds) }, body };
}

function failureBody(errorCode: number, userMessage: string, more: Record<string, string> = {}): Buffer {
  const errorDetails = { errorCode: String(errorCode), userMessage, ...more };
  return toXml('response', { status: 'FAILURE', errorDetails });
}
