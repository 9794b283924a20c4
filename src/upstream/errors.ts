import { GatewayError } from '../base/errors.ts';

/** `overloaded`: too many requests wait for a connection of this upstream. */
export function overloaded(): GatewayError {
  return new GatewayError(
    'overloaded',
    'Too many requests wait for this upstream. Try again later; raise connections if the upstream allows more.',
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
