import { GatewayError } from '../base/errors.ts';
import { withoutField } from '../base/raw-headers.ts';
import type { Nonce } from '../challenges/nonce.ts';
import { hash } from '../digest/algorithms.ts';
import { outOfBodyMemory } from './errors.ts';
import type { Message, RequestBody, UpstreamRequest } from './exchange.ts';

/** Header field of the credentials: for an upstream, or for a proxy (RFC 9110 §11.6.2, §11.7.2). */
export type CredentialsField = 'authorization' | 'proxy-authorization';

/** The parts of a request that are sent. */
type Unsigned = Pick<UpstreamRequest, 'method' | 'target' | 'headers' | 'body'>;

/** Returns the request as it is: the upstream asks for authentication if it wants any. */
export function unsigned({ method, target, headers, body }: Unsigned): Message {
  return { method, target, headers, body: payload(body) };
}

/**
 * Returns the request with the answer to a challenge, and the cookies that came with it.
 * @throws GatewayError `body-too-large` or `overloaded` when the answer needs a body that is not in memory
 */
export function signed(
  request: Unsigned,
  nonce: Nonce,
  nc: number,
  field: CredentialsField = 'authorization',
): Message {
  const { method, target, body } = request;
  const bodyHash = nonce.answer.qop === 'auth-int' ? hashOf(body, nonce) : undefined;
  const answer = nonce.answer.authorize({ method, uri: target, nc, bodyHash });
  // A list that a spread makes has room for many more.
  const headers = request.headers.concat(field, answer);
  if (nonce.cookies.length > 0) headers.push('cookie', nonce.cookies.join('; '));
  return { method, target, headers, body: payload(body) };
}

/** Returns a request without a body that makes the upstream ask for authentication. */
export function challengeRequest({ target, headers }: Unsigned, method: string): Message {
  return { method, target, headers: withoutField(headers, 'content-length'), body: null };
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
