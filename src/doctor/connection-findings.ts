import { errorCode } from '../base/error-code.ts';
import { asGatewayError } from '../base/errors.ts';
import { count } from '../base/units.ts';
import { ProxyError, tlsFault } from '../transport/errors.ts';
import { expiryOf, PinMissing, type TlsSeen } from '../transport/upstream-tls.ts';
import { type Finding, fine, wrong } from './finding.ts';

/** Clock difference in milliseconds above which a warning is given: nonces and certificates depend on time. */
const CLOCK_MS = 30_000;

type Known = readonly [Parameters<typeof wrong>[1], string];

/** Codes of Node with their problem and observation. */
const byCode: ReadonlyMap<string, Known> = new Map([
  ['ENOTFOUND', ['name-not-found', 'DNS does not know the name']],
  ['EAI_AGAIN', ['name-not-answered', 'DNS did not answer for the name']],
  ['ECONNREFUSED', ['connection-refused', 'nothing listens there: the connection was refused']],
  ['ETIMEDOUT', ['connection-timeout', 'no connection in time']],
  ['EHOSTUNREACH', ['no-route', 'no route to the address']],
  ['ENETUNREACH', ['no-route', 'no route to the address']],
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
  const fault = tlsFault(code);
  if (fault !== undefined) {
    const { name, what, advice } = fault;
    return { check: 'tls', mark: 'fail', problem: `tls-${name}`, saw: what, advice: `${withKeys(advice)}.` };
  }
  if (failure.code === 'upstream-protocol') {
    return wrong('connection', 'not-http', withoutStop(failure.detail));
  }
  const known = byCode.get(code) ?? byGatewayCode.get(failure.code);
  return known === undefined
    ? wrong('connection', 'unknown', failure.detail)
    : wrong('connection', known[0], known[1]);
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
  const { protocol, expiresAt } = seen;
  // A distinguished name has one attribute on each line.
  const issuer = seen.issuer.trimEnd().replaceAll('\n', ', ');
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
