import type { Refusal } from './authentication.ts';
import type { NonceUse } from './nonces.ts';
import type { Fault } from './settings.ts';

/** Events of a deployment since its start or reset. */
export interface Tally {
  /** TCP connections, including those with a failed TLS handshake. */
  connections: number;
  requests: number;
  /** Requests without an Authorization header. */
  unauthenticated: number;
  /** Requests with a correct digest and a valid nonce, whatever the response. */
  accepted: number;
  /** Requests with an Authorization header that got 401 (or 400), by reason. */
  refused: Record<Refusal, number>;
  /** Requests refused during a lock-out of their address. */
  lockedOut: number;
  /** 401 responses with a Digest challenge; `stale` counts those with stale="true". */
  challenges: number;
  stale: number;
  refusedByAddress: number;
  refusedBySite: number;
  /** Requests whose client left before the end of the response. */
  aborted: number;
  faults: Record<Fault['kind'], number>;
}

export interface Counts extends Tally {
  /** Number of distinct nonces that were used with a correct digest. */
  distinctNonces: number;
  /** Uses of each of them, ordered by first use; never the nonces themselves. */
  nonces: NonceUse[];
  /** Correct digests whose nc was not higher than every earlier one of their nonce. */
  ncViolations: number;
}

/** Creates counts of zero. */
export function createTally(): Tally {
  return {
    connections: 0,
    requests: 0,
    unauthenticated: 0,
    accepted: 0,
    refused: {
      malformed: 0,
      scheme: 0,
      realm: 0,
      uri: 0,
      algorithm: 0,
      qop: 0,
      'unknown-user': 0,
      'wrong-response': 0,
      opaque: 0,
      cookie: 0,
      'nonce-unknown': 0,
      'nonce-expired': 0,
      'nonce-used': 0,
      nc: 0,
    },
    lockedOut: 0,
    challenges: 0,
    stale: 0,
    refusedByAddress: 0,
    refusedBySite: 0,
    aborted: 0,
    faults: {
      delay: 0,
      'reset-before-head': 0,
      hang: 0,
      garbage: 0,
      'endless-401': 0,
      'no-digest': 0,
      status: 0,
      throttle: 0,
      'reset-in-body': 0,
      'slow-body': 0,
      'content-length': 0,
    },
  };
}
