import type { AlgorithmName } from '../digest/algorithms.ts';
import {
  type Challenge,
  chooseChallenge,
  lacksRealm,
  offersScheme,
  parseChallenges,
} from '../digest/challenge.ts';
import { type Finding, fine, wrong } from './finding.ts';
import { challengesOf, type ObservedResponse } from './observed-connections.ts';

/** Statuses of a lock-out, throttling or an intermediary, which show nothing about authentication. */
const UNAVAILABLE = new Set([429, 502, 503, 504]);

/** Statuses of an upstream that does not know the target or the method of the probe. */
const NOT_SERVED = new Set([404, 405, 410, 501]);

/** True if the status shows nothing about authentication. */
export function isUnavailable(status: number): boolean {
  return UNAVAILABLE.has(status);
}

/** Judges the response to a request without authentication. */
export function challengeFinding(response: ObservedResponse, allowed: readonly AlgorithmName[]): Finding {
  if (response.status !== 401) return unchallenged(response.status);
  const lines = challengesOf(response);
  const usable = parseChallenges(lines);
  const chosen = chooseChallenge(usable, allowed);
  if (chosen?.realm === '' && lacksRealm(lines)) {
    return wrong(
      'challenge',
      'realm-missing',
      'a Digest challenge without realm, which doctor does not answer',
    );
  }
  if (chosen !== undefined) return described(chosen, usable.length);
  if (!offersScheme(lines, 'digest')) {
    return wrong('challenge', 'no-digest', 'HTTP 401 without a Digest challenge');
  }
  if (usable.length === 0) {
    const saw = 'a Digest challenge that is malformed or has an unknown algorithm or qop';
    return wrong('challenge', 'challenge-unusable', saw);
  }
  const offered = usable.map(({ algorithm }) => algorithm.token).join(', ');
  return wrong(
    'challenge',
    'algorithm-not-allowed',
    `it offers ${offered}; digest.algorithms allows none of these`,
  );
}

function unchallenged(status: number): Finding {
  const facts = { status };
  if (isUnavailable(status)) return wrong('challenge', 'upstream-unavailable', `HTTP ${status}`, facts);
  const saw = `HTTP ${status} to a request without authentication`;
  if (status === 403) return wrong('challenge', 'refused-unasked', saw, facts);
  return wrong('challenge', status >= 500 ? 'upstream-error' : 'no-challenge', saw, facts);
}

function described({ realm, algorithm, qop, stale }: Challenge, offered: number): Finding {
  const qops = qop.length === 0 ? 'no qop' : `qop ${qop.join(' and ')}`;
  const others = offered > 1 ? `, the strongest of ${offered}` : '';
  return fine('challenge', `realm "${realm}", ${algorithm.token}, ${qops}, stale ${stale}${others}`, {
    realm,
    algorithm: algorithm.token,
    qop: qop.join(','),
    stale,
  });
}

/** Judges the response to a request whose Digest was accepted. `address`: the source address, if known. */
export function accessFinding(
  response: ObservedResponse,
  ofSite: boolean,
  address: string | undefined,
): Finding {
  const { status } = response;
  const facts = { status };
  const saw = `HTTP ${status}`;
  if (status === 401 || status === 403) {
    const from = address === undefined ? '' : `, from ${address}`;
    return wrong('access', 'refused-afterwards', `${saw} after Digest succeeded${from}`, facts);
  }
  if (isUnavailable(status)) return wrong('access', 'upstream-unavailable', saw, facts);
  if (NOT_SERVED.has(status)) return wrong('access', 'probe-not-served', saw, facts);
  if (status === 500 && ofSite) {
    return wrong('access', 'site-refused', `${saw} after Digest succeeded`, facts);
  }
  if (status >= 500) return wrong('access', 'upstream-error', saw, facts);
  return fine('access', `${saw}, not refused`, facts);
}
