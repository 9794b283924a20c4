import type { Socket } from 'node:net';
import type { GatewayError } from '../base/errors.ts';
import { type RawHeaders, withoutField } from '../base/raw-headers.ts';
import { type ClientResponse, dateLine, linesOf, reasonOf } from './client-response.ts';
import { lingerOn } from './linger.ts';

interface Problem {
  readonly status: number;
  readonly headers: RawHeaders;
  readonly body: string;
}

/**
 * Sends an error of the gateway: problem+json (RFC 9457), Proxy-Status (RFC 9209) and `fields`, a flat
 * list.
 */
export function sendProblem(
  response: ClientResponse,
  error: GatewayError,
  requestId: string,
  fields: RawHeaders = [],
): void {
  const { status, headers, body } = problemOf(error, requestId);
  response.begin(status, reasonOf(status), [...headers, ...fields]);
  response.end(Buffer.from(body), []);
}

/** Does the same on a connection on which no request could be read, and closes it. */
export function sendRawProblem(socket: Socket, error: GatewayError, requestId: string): void {
  const { status, headers, body } = problemOf(error, requestId);
  const lines = `${linesOf(headers)}${dateLine()}Connection: close\r\n`;
  socket.end(`HTTP/1.1 ${status} ${reasonOf(status)}\r\n${lines}\r\n${body}`);
  lingerOn(socket);
}

function problemOf(error: GatewayError, requestId: string): Problem {
  const { code, detail, kind, proxyError } = error;
  const { status, title } = kind;
  const body = `${JSON.stringify({ status, code, title, detail, requestId })}\n`;
  return {
    status,
    body,
    headers: [
      ...headersOf(error),
      'content-type',
      'application/problem+json',
      'content-length',
      String(Buffer.byteLength(body)),
      'cache-control',
      'no-store',
      'proxy-status',
      `digest-gateway; error=${proxyError}`,
      'x-request-id',
      requestId,
    ],
  };
}

/** Returns the headers of the error's code; a Retry-After of the error itself takes the place of the code's. */
function headersOf({ kind: { headers = [] }, retryAfter }: GatewayError): RawHeaders {
  if (retryAfter === undefined) return headers;
  return ['retry-after', String(retryAfter), ...withoutField(headers, 'retry-after')];
}
