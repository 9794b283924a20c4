import { GatewayError } from '../base/errors.ts';

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
