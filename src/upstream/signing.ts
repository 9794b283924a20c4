import { GatewayError } from '../base/errors.ts';
import type { Nonce } from '../challenges/nonce.ts';
import { hash } from '../digest/algorithms.ts';
import type { TracedWork } from '../tracing/tracing.ts';
import type { RequestBody } from './body.ts';
import type { ExchangeRequest } from './exchange.ts';
import { outOfBodyMemory } from './refusals.ts';

/** RFC 9110 §9.2.2: only these may be sent again when nothing is known of the first. */
export const IDEMPOTENT: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS', 'TRACE', 'PUT', 'DELETE']);

/** A client's request, its body taken. */
export interface UpstreamRequest {
  readonly method: string;
  /** The request target, byte for byte. */
  readonly target: string;
  /** Flat list: name, value, name, value … */
  readonly headers: readonly string[];
  readonly body: RequestBody;
  /** What it is part of; undefined: nothing is traced. */
  readonly trace: TracedWork | undefined;
}

/** What goes over the wire. */
export type Message = Pick<ExchangeRequest, 'method' | 'target' | 'headers' | 'body' | 'trace'>;

/** The request as it is: the upstream will ask for authentication if it wants any. */
export function unsigned({ method, target, headers, body, trace }: UpstreamRequest): Message {
  return { method, target, headers, body: payload(body), trace };
}

/**
 * The request with the answer to a challenge, and the cookies that came with it.
 * @throws GatewayError `body-too-large` or `overloaded` when the answer needs a body that is not in memory
 */
export function signed(request: UpstreamRequest, nonce: Nonce, nc: number): Message {
  const { method, target, body, trace } = request;
  const bodyHash = nonce.answer.qop === 'auth-int' ? hashOf(body, nonce) : undefined;
  const authorization = nonce.answer.authorize({ method, uri: target, nc, bodyHash });
  const headers = [...request.headers, 'authorization', authorization];
  if (nonce.cookies.length > 0) headers.push('cookie', nonce.cookies.join('; '));
  return { method, target, headers, body: payload(body), trace };
}

/** A request that does nothing but make the upstream ask for authentication. */
export function question({ target, headers, trace }: UpstreamRequest): Message {
  return { method: 'HEAD', target, headers: withoutLength(headers), body: null, trace };
}

function payload(body: RequestBody): Message['body'] {
  if (body.kind === 'none') return null;
  return body.kind === 'kept' ? body.bytes : body.chunks;
}

/** H(entity-body) for auth-int, RFC 7616 §3.4.3. */
function hashOf(body: RequestBody, nonce: Nonce): string | undefined {
  if (body.kind === 'none') return undefined;
  if (body.kind === 'kept') return hash(nonce.challenge.algorithm.name, body.bytes);
  if (body.spilled) throw outOfBodyMemory();
  throw new GatewayError(
    'body-too-large',
    'The upstream asks for auth-int, which needs the whole body in memory, and the body is larger than body.replayUpTo.',
  );
}

function withoutLength(headers: readonly string[]): string[] {
  return headers.filter((_, index) => headers[index - (index % 2)]?.toLowerCase() !== 'content-length');
}
