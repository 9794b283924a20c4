import { GatewayError } from '../base/errors.ts';

/**
 * A client has `own` requests here, and may have no more. Like the others, it has the expected wait for a connection, in
 * milliseconds, as its Retry-After.
 */
export function tooManyRequests(own: number, expectedWait: number): GatewayError {
  return overloaded(
    `This client has ${own} requests on connections to this upstream or waiting for one, and may have no more (connections). Send fewer at a time and try again later. Raise connections if the upstream allows more.`,
    expectedWait,
  );
}

/** A request would have to wait for longer than `longest` milliseconds. */
export function waitTooLong(expectedWait: number, longest: number): GatewayError {
  return overloaded(
    `A connection to this upstream is expected to be free in ${Math.ceil(expectedWait)} ms, and requests wait for ${longest} ms at most (timeouts.response). ${REMEDY}`,
    expectedWait,
  );
}

/** A request has waited for longer than `longest` milliseconds. */
export function waitedTooLong(longest: number, expectedWait: number): GatewayError {
  return overloaded(
    `No connection to this upstream became free for this request within ${longest} ms (timeouts.response). ${REMEDY}`,
    expectedWait,
  );
}

/** The client holds more connections than `share`, and this exchange waited for it while other clients waited. */
export function tooSlowForItsShare(share: number): GatewayError {
  return overloaded(
    `The client was slow to send or to read, and has more than ${share} requests on connections to this upstream, while other clients wait for one (connections). Send fewer slow requests at a time.`,
    0,
  );
}

const REMEDY = 'Try again later. Find out why the upstream is slow, or raise connections if it allows more.';

function overloaded(detail: string, expectedWait: number): GatewayError {
  return new GatewayError('overloaded', detail, undefined, {
    retryAfter: Math.max(1, Math.ceil(expectedWait / 1000)),
  });
}
