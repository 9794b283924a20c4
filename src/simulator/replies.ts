import type { IncomingMessage, OutgoingHttpHeaders } from 'node:http';
import { toXml } from './documents.ts';
import type { RequestBody } from './request-body.ts';

/** A response before faults are applied. */
export interface Reply {
  readonly status: number;
  readonly headers: OutgoingHttpHeaders;
  /** A buffer gets a Content-Length; a stream has one in its headers or is sent chunked. */
  readonly body: Buffer | AsyncIterable<Buffer>;
  /** Called after the last chunk of a body; returns the trailers. */
  readonly trailers?: () => Record<string, string>;
  /** Link field of a 103 response, which is sent first. */
  readonly earlyLink?: string;
}

/** A request that has passed Digest and the address check. */
export interface SimulatedRequest {
  readonly request: IncomingMessage;
  readonly method: string;
  readonly path: string;
  readonly query: URLSearchParams;
  readonly body: RequestBody;
}

const xml = 'application/xml;charset=UTF-8';

/** Creates an error response in the service's format. */
export function failure(status: number, errorCode: number, message: string): Reply {
  return {
    status,
    headers: { 'content-type': xml, 'x-frame-options': 'DENY' },
    body: failureBody(errorCode, message),
  };
}

/** Creates a response for a throttled client. @param callAt time of the next allowed call. */
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
