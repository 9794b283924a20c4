import { errorCode } from '../base/error-code.ts';
import { asGatewayError } from '../base/errors.ts';
import { fieldValue } from '../base/raw-headers.ts';
import { count } from '../base/units.ts';
import type { AlgorithmName } from '../digest/algorithms.ts';
import {
  type Challenge,
  chooseChallenge,
  exceedsLength,
  lacksRealm,
  offersScheme,
  parseChallenges,
} from '../digest/challenge.ts';
import type { UpstreamResponse } from '../handshake/response.ts';
import { tlsFault } from '../transport/errors.ts';
import { ProxyError } from '../transport/proxy-errors.ts';
import { expiryOf, nameOf, PinMissing, type TlsSeen } from '../transport/upstream-tls.ts';
import { type Finding, fine, wrong } from './finding.ts';
import { challengesOf } from './observed-connections.ts';

/** Clock difference in milliseconds above which a warning is given: nonces and certificates depend on time. */
const CLOCK_MS = 30_000;

type Known = readonly [Parameters<typeof wrong>[1], string];

/** Codes of Node with their problem and observation. */
export const byCode: ReadonlyMap<string, Known> = new Map([
  ['ENOTFOUND', ['name-not-found', 'DNS does not know the name']],
  ['EAI_AGAIN', ['name-not-answered', 'DNS did not answer for the name']],
  ['ETIMEOUT', ['name-not-answered', 'DNS did not answer for the name in time']],
  [
    'EAI_ADDRFAMILY',
    ['name-of-other-family', 'DNS has no address for the name that egress.localAddress can reach'],
  ],
  ['ECONNREFUSED', ['connection-refused', 'nothing listens there: the connection was refused']],
  ['ETIMEDOUT', ['connection-timeout', 'no connection in time']],
  [
    'ERR_TLS_HANDSHAKE_TIMEOUT',
    ['handshake-timeout', 'it accepted the connection, and took too long for TLS'],
  ],
  ['EHOSTUNREACH', ['no-route', 'no route to the address']],
  ['ENETUNREACH', ['no-route', 'no route to the address']],
  ['ECONNRESET', ['connection-broken', 'the other side ended the connection']],
  ['EPIPE', ['connection-broken', 'the other side ended the connection']],
  ['EACCES', ['not-permitted', 'this host does not permit the connection']],
  ['EPERM', ['not-permitted', 'this host does not permit the connection']],
  ['EMFILE', ['no-files-left', 'this process may not open any more files']],
  ['ENFILE', ['no-files-left', 'this host may not open any more files']],
]);

/** The same for the gateway's own codes. */
const byGatewayCode: ReadonlyMap<string, Known> = new Map([
  ['upstream-timeout', ['answer-timeout', 'no response in time']],
  ['upstream-unreachable', ['connection-broken', 'the connection broke']],
  [
    'upstream-proof-invalid',
    ['proof-invalid', 'it does not prove that it knows the credential (rspauth is wrong)'],
  ],
  ['credential-unavailable', ['credential-unsuitable', 'ha1 does not fit what the upstream asks for']],
]);

/** Returns the finding for a request without a response. */
export function connectionFinding(error: unknown): Finding {
  const failure = asGatewayError(error);
  if (failure instanceof PinMissing) {
    return wrong('tls', 'tls-pin-mismatch', 'no key in its certificate chain is pinned');
  }
  if (failure instanceof ProxyError) return proxyProblem(failure);
  const code = errorCode(failure.cause);
  const known = byCode.get(code);
  const fault = known === undefined ? tlsFault(code) : undefined;
  if (fault !== undefined) {
    const { name, what, advice } = fault;
    return { check: 'tls', mark: 'fail', problem: `tls-${name}`, saw: what, advice: `${withKeys(advice)}.` };
  }
  if (failure.code === 'upstream-protocol') {
    return wrong('connection', 'not-http', withoutStop(failure.detail));
  }
  const [problem, saw] = known ?? byGatewayCode.get(failure.code) ?? ['unknown', failure.detail];
  return wrong('connection', problem, saw);
}

/** Marks the keys of the deployment in an advice on TLS, as in the table of problems. */
function withKeys(advice: string): string {
  return advice.replaceAll(/\b(?:caFile|serverName|minVersion|certFile|keyFile)\b/g, '{tls.$&}');
}

/** Splits the detail: its first sentence is the observation, the rest is the advice, if there is any. */
function proxyProblem({ detail }: ProxyError): Finding {
  const [what = '', ...rest] = detail.split(/\.\s+/);
  const problem = wrong('connection', 'proxy', withoutStop(what));
  return rest.length === 0 ? problem : { ...problem, advice: rest.join('. ') };
}

function withoutStop(sentence: string): string {
  return sentence.replace(/\.$/, '');
}

/** Judges the TLS handshake. `now`: Unix time in milliseconds; `seen`: undefined without TLS. */
export function tlsFinding(seen: TlsSeen | undefined, now: number): Finding {
  if (seen === undefined) return wrong('tls', 'plaintext', 'no TLS');
  const { protocol, chain } = seen;
  const [{ expiresAt, ...certificate }] = chain;
  const issuer = nameOf(certificate.issuer);
  const { daysLeft, isSoon, text } = expiryOf(expiresAt, now);
  const saw = `${protocol}, issued by ${issuer}, ${text}`;
  const facts = { protocol, issuer, expiresAt: new Date(expiresAt).toISOString(), daysLeft };
  return isSoon ? wrong('tls', 'certificate-expires-soon', saw, facts) : fine('tls', saw, facts);
}

/** `differenceMs`: lead of the upstream's clock; undefined if unknown, which gives no finding. */
export function clockFinding(differenceMs: number | undefined): Finding[] {
  if (differenceMs === undefined) return [];
  const seconds = Math.round(differenceMs / 1000);
  const direction = seconds < 0 ? 'behind' : 'ahead of';
  const saw =
    seconds === 0
      ? 'the same as here'
      : `the upstream is ${count(Math.abs(seconds), 'second')} ${direction} this host`;
  const facts = { differenceMs };
  const off = Math.abs(differenceMs) > CLOCK_MS;
  return [off ? wrong('clock', 'clock-difference', saw, facts) : fine('clock', saw, facts)];
}

/** Statuses of a lock-out, throttling or an intermediary. */
const UNAVAILABLE: ReadonlyMap<number, Known> = new Map([
  [423, ['upstream-locked', 'HTTP 423: locked']],
  [429, ['upstream-rate-limited', 'HTTP 429: too many requests']],
  ...[502, 503, 504].map((status): [number, Known] => [status, ['upstream-unavailable', `HTTP ${status}`]]),
]);

/** Statuses of an upstream that does not know the target or the method of the probe. */
const NOT_SERVED = new Set([404, 405, 410, 501]);

/** Returns the finding for a status that shows nothing about authentication; undefined for another one. */
export function unavailableFinding(check: Finding['check'], status: number): Finding | undefined {
  const known = UNAVAILABLE.get(status);
  return known && wrong(check, known[0], known[1], { status });
}

/**
 * Returns the finding for a 403 to a credential of which nothing else is known: some upstreams respond so to a wrong
 * password. Authentication-Info comes only if it is right. Undefined for another response.
 */
export function unprovenFinding(
  { status, headers }: UpstreamResponse,
  address: string | undefined,
): Finding | undefined {
  if (status !== 403 || fieldValue(headers, 'authentication-info') !== undefined) return undefined;
  const saw = `not known: HTTP 403 without Authentication-Info${fromAddress(address)}`;
  return wrong('credential', 'credential-unproven', saw, { status });
}

/** Judges the response to a request without authentication. */
export function challengeFinding(response: UpstreamResponse, allowed: readonly AlgorithmName[]): Finding {
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
  if (usable.length === 0 && exceedsLength(lines)) {
    return wrong('challenge', 'challenge-too-long', 'HTTP 401 with a challenge that is too long');
  }
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
  const unavailable = unavailableFinding('challenge', status);
  if (unavailable !== undefined) return unavailable;
  const facts = { status };
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

function fromAddress(address: string | undefined): string {
  return address === undefined ? '' : `, from ${address}`;
}

/** Judges the response to a request whose Digest was accepted. `address`: the source address, if known. */
export function accessFinding(
  response: UpstreamResponse,
  ofSite: boolean,
  address: string | undefined,
): Finding {
  const { status } = response;
  const facts = { status };
  const saw = `HTTP ${status}`;
  if (status === 401 || status === 403) {
    const seen = `${saw} after Digest succeeded${fromAddress(address)}`;
    return wrong('access', 'refused-afterwards', seen, facts);
  }
  const unavailable = unavailableFinding('access', status);
  if (unavailable !== undefined) return unavailable;
  if (NOT_SERVED.has(status)) return wrong('access', 'probe-not-served', saw, facts);
  if (status === 500 && ofSite) {
    return wrong('access', 'site-refused', `${saw} after Digest succeeded`, facts);
  }
  if (status >= 500) return wrong('access', 'upstream-error', saw, facts);
  return fine('access', `${saw}, not refused`, facts);
}
