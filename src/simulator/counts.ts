import type { Refusal } from './authentication.ts';
import type { NonceUse } from './nonce-uses.ts';
import type { Fault } from './settings.ts';

/** What happened in a deployment since it started or was reset. */
export interface Tally {
  /** TCP connections, those included whose TLS handshake failed. */
  connections: number;
  requests: number;
  /** Without an Authorization header. */
  unauthenticated: number;
  /** With a right Digest and a good nonce, whatever they were answered. */
  accepted: number;
  /** With an Authorization header that was answered 401 (or 400), by reason. */
  refused: Record<Refusal, number>;
  /** Refused for the lock-out of their address. */
  lockedOut: number;
  /** 401 answers with a Digest challenge, `stale` those among them with stale="true". */
  challenges: number;
  stale: number;
  refusedByAddress: number;
  refusedBySite: number;
  /** Left by the client before the answer was through. */
  aborted: number;
  faults: Record<Fault['kind'], number>;
}

export interface Counts extends Tally {
  /** How many different nonces came back with a right digest. */
  distinctNonces: number;
  /** The use of each of them, in the order they first came; never the nonces themselves. */
  nonces: NonceUse[];
  /** Right digests whose nc was not above every earlier one of their nonce. */
  ncViolations: number;
}

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
