import { GatewayError } from '../base/errors.ts';

/** `upstream-credential-refused`: every version of the credential is refused, or no attempt is due. */
export function credentialRefused(): GatewayError {
  return new GatewayError(
    'upstream-credential-refused',
    'The upstream refuses the credential of this request; the gateway tries it again at most digest.attemptsWhenRefused times a minute. Check user name and password, or ask the operator of the upstream.',
  );
}

/** `upstream-target-refused`: the upstream accepts the credential, and not with this target. */
export function targetRefused(): GatewayError {
  return new GatewayError(
    'upstream-target-refused',
    'The upstream refuses this target although it accepts the credential. Check how the target is written, and whether the account may use it.',
  );
}

/** `upstream-no-digest`: a 401 without a Digest challenge that may be answered. */
export function noDigest(): GatewayError {
  return new GatewayError(
    'upstream-no-digest',
    'The upstream answered 401 without a Digest challenge that the gateway may use. Check baseUrl and digest.algorithms.',
  );
}

/** `upstream-protocol`: each attempt was refused as stale, one with a fresh nonce too (RFC 7616 §3.3). */
export function alwaysStale(): GatewayError {
  return new GatewayError(
    'upstream-protocol',
    'The upstream calls every nonce stale, even one that it has just issued.',
  );
}

/** `upstream-protocol`: the upstream goes on issuing a nonce whose count belongs to another process now. */
export function nonceIssuedAgain(): GatewayError {
  return new GatewayError(
    'upstream-protocol',
    'The upstream issues only a nonce that the gateway has left to another of its processes, which may be counting on it. Send the request again.',
  );
}

/** `upstream-protocol`: both attempts were refused, and the credential is not. */
export function refusedAgain(): GatewayError {
  return new GatewayError(
    'upstream-protocol',
    'The upstream answered 401 to both authenticated attempts of this request, although it does not refuse the credential. Send the request again.',
  );
}

/** `upstream-protocol`: a 401 to a request whose body was sent and not kept. */
export function cannotRepeat(): GatewayError {
  return new GatewayError(
    'upstream-protocol',
    'The upstream asked for authentication again after the body was sent, and the body was not kept: it is larger than body.replayUpTo, or listen.limits.bodyMemory was used up. Send the request again. If it fails each time, raise body.replayUpTo.',
  );
}

/** `overloaded`: there is no memory to keep a body that would have to be kept. */
export function outOfBodyMemory(): GatewayError {
  return new GatewayError(
    'overloaded',
    'The bodies of other requests use up the memory for bodies (listen.limits.bodyMemory), or the part that one client may have. Try again later.',
  );
}

/** `request-timeout`: `totalTimeout`, in milliseconds, passed while the client was sending its body. */
export function clientTooSlow(totalTimeout: number): GatewayError {
  return new GatewayError(
    'request-timeout',
    `The body of the request did not arrive within ${totalTimeout} ms (timeouts.total).`,
  );
}

/** `upstream-timeout`: `totalTimeout`, in milliseconds, passed while the upstream was to respond. */
export function upstreamTooSlow(totalTimeout: number): GatewayError {
  return new GatewayError(
    'upstream-timeout',
    `The request took longer than ${totalTimeout} ms in total (timeouts.total).`,
  );
}

/** `upstream-circuit-open`: `retryAfterMs` until a request may be tried; 0: one is being tried. */
export function circuitOpen(retryAfterMs: number): GatewayError {
  return new GatewayError(
    'upstream-circuit-open',
    'The circuit to this upstream is open: most recent requests failed. Try again later.',
    undefined,
    { retryAfter: Math.max(1, Math.ceil(retryAfterMs / 1000)) },
  );
}
