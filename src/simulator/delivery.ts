import { once } from 'node:events';
import type { OutgoingHttpHeaders, ServerResponse } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import type { FaultyConnection, RequestFaults } from './faults.ts';
import type { Reply } from './messages.ts';

/** The destination of a response. */
export interface ResponseTarget {
  readonly response: ServerResponse;
  readonly connection: FaultyConnection;
  readonly head: boolean;
  /** Aborted when the connection has closed. */
  readonly gone: AbortSignal;
}

/** Statuses without content (RFC 9110 §15.3.5, §15.3.6, §15.4.5). */
const bodyless = new Set([204, 205, 304]);

/** True if the response can have a body. */
export function hasBody(status: number, head: boolean): boolean {
  return !head && !bodyless.has(status);
}

/**
 * Writes the response with the faults of its body. Streams with back-pressure.
 * @throws AbortError if the client leaves in the meantime.
 */
export async function deliver(reply: Reply, target: ResponseTarget, faults: RequestFaults): Promise<void> {
  const { response, connection } = target;
  const offBy = faults.length?.offBy ?? 0;
  if (reply.earlyLink !== undefined) response.writeEarlyHints({ link: reply.earlyLink });
  if (!hasBody(reply.status, target.head)) {
    // Trailers need a body; Node refuses to announce them without one.
    const { trailer: _, ...headers } = headersOf(reply, offBy);
    response.writeHead(reply.status, headers);
    response.end();
    return;
  }
  response.writeHead(reply.status, headersOf(reply, offBy));
  const { body } = reply;
  if (Buffer.isBuffer(body) && faults.cut === undefined && faults.pace === undefined) {
    response.end(body);
  } else {
    await stream(reply, target, faults);
  }
  if (offBy !== 0) connection.finish();
}

function headersOf({ status, headers, body }: Reply, offBy: number): OutgoingHttpHeaders {
  const known = Buffer.isBuffer(body) ? body.length : headers['content-length'];
  if (known === undefined || status === 204 || status === 304) return headers;
  if (status === 205) return { ...headers, 'content-length': 0 };
  return { ...headers, 'content-length': Math.max(0, Number(known) + offBy) };
}

async function stream(reply: Reply, target: ResponseTarget, { cut, pace }: RequestFaults): Promise<void> {
  const { response, gone } = target;
  const source = Buffer.isBuffer(reply.body) ? [reply.body] : reply.body;
  let left = cut?.afterBytes ?? Number.POSITIVE_INFINITY;
  for await (const chunk of pace === undefined ? source : slices(source, pace.bytes)) {
    if (chunk.length >= left) {
      await written(response, chunk.subarray(0, left));
      target.connection.reset();
      return;
    }
    left -= chunk.length;
    if (!response.write(chunk)) await once(response, 'drain', { signal: gone });
    if (pace !== undefined) await sleep(pace.everyMs, undefined, { signal: gone });
    gone.throwIfAborted();
  }
  if (reply.trailers !== undefined) response.addTrailers(reply.trailers());
  response.end();
}

/** Resolves when the kernel has the bytes, because a reset discards unsent ones. */
function written(response: ServerResponse, chunk: Buffer): Promise<void> {
  return new Promise((resolve) => response.write(chunk, () => resolve()));
}

async function* slices(
  source: Iterable<Buffer> | AsyncIterable<Buffer>,
  size: number,
): AsyncGenerator<Buffer> {
  for await (const chunk of source) {
    for (let at = 0; at < chunk.length; at += size) yield chunk.subarray(at, at + size);
  }
}
