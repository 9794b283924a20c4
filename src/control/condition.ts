import { expiryOf } from '../transport/upstream-tls.ts';
import type { DeploymentInterval } from './totals.ts';
import type { CodeCount, Condition, Problem, State } from './view.ts';
import { WORDS } from './words.ts';

/** Minimum number of requests for a judgement by shares. */
const ENOUGH = 10;
/** Share of refused requests from which a deployment is degraded. */
const REFUSED_SHARE = 0.5;

const { condition: words } = WORDS;

interface Finding {
  readonly state: State;
  readonly reason: string;
}

export interface DeploymentEvidence {
  readonly minute: DeploymentInterval;
  /** The error that readiness reports; empty if there is none. */
  readonly error: string;
  /** True if the deployment can serve requests in spite of it. */
  readonly serving: boolean;
  readonly policy: string;
  /** Unix milliseconds. */
  readonly certificateExpiresAt: number | undefined;
  readonly now: number;
  readonly titleOf: (code: string) => string;
}

/** Returns the state of a deployment and the reasons for it. */
export function conditionOf(evidence: DeploymentEvidence): Condition {
  const findings = [
    ...known(evidence),
    ...failing(evidence),
    ...refusing(evidence),
    ...certificate(evidence),
    ...nonces(evidence),
  ];
  if (findings.length > 0) return summarize(findings);
  const { requests, refused, seconds } = evidence.minute;
  return { state: 'ok', reasons: [requests === 0 ? words.quiet : words.served(requests, refused, seconds)] };
}

/**
 * Returns the state of the gateway as a whole, from its readiness and its deployments. `warnings` are shown,
 * and do not change the state.
 */
export function gatewayCondition(
  failedChecks: readonly string[],
  served: boolean,
  deployments: readonly ({ readonly name: string } & Condition)[],
  warnings: readonly string[],
): Condition & { readonly problems: readonly Problem[] } {
  const own = failedChecks.map(
    (reason): Finding => ({ state: served ? 'degraded' : 'broken', reason: sentence(reason) }),
  );
  const notOk = deployments.filter(({ state }) => state !== 'ok');
  const allBroken = deployments.length > 0 && deployments.every(({ state }) => state === 'broken');
  const theirs = notOk.map(
    ({ name, state }): Finding => ({
      state: allBroken ? 'broken' : 'degraded',
      reason: words.deploymentNotOk(name, state),
    }),
  );
  const attention = warnings.map(sentence);
  const problems = [
    ...own.map(({ state, reason }): Problem => ({ state, text: reason })),
    ...notOk.map(
      ({ name, state, reasons }): Problem => ({ state, text: reasons[0] ?? '', deployment: name }),
    ),
    ...attention.map((text): Problem => ({ state: 'ok', text })),
  ];
  if (own.length + theirs.length > 0) {
    const { state, reasons } = summarize([...own, ...theirs]);
    return { state, reasons: [...reasons, ...attention], problems: problems.toSorted(worstFirst) };
  }
  return {
    state: 'ok',
    reasons: [words.nothingWrong(deployments.length), ...attention],
    problems,
  };
}

const RANK: Readonly<Record<State, number>> = { broken: 0, degraded: 1, ok: 2 };

function worstFirst(a: Problem, b: Problem): number {
  return RANK[a.state] - RANK[b.state];
}

function* known({ error, serving }: DeploymentEvidence): Generator<Finding> {
  if (error !== '') yield { state: serving ? 'degraded' : 'broken', reason: sentence(error) };
}

function* failing({ minute, titleOf }: DeploymentEvidence): Generator<Finding> {
  const { requests, errors, errorCodes, seconds } = minute;
  if (errors === 0) return;
  const causes = causesOf(errorCodes, titleOf);
  const whole = errors === requests;
  const reason = whole
    ? words.allFailed(seconds, causes)
    : words.someFailed(errors, requests, seconds, causes);
  yield { state: whole ? 'broken' : 'degraded', reason };
}

/** A client that is refused most of the time has a fault, or meets one of the configuration. */
function* refusing({ minute, titleOf }: DeploymentEvidence): Generator<Finding> {
  const { requests, refused, refusedCodes, seconds } = minute;
  if (requests < ENOUGH || refused < requests * REFUSED_SHARE) return;
  yield {
    state: 'degraded',
    reason: words.refused(refused, requests, seconds, causesOf(refusedCodes, titleOf)),
  };
}

function causesOf(codes: readonly CodeCount[], titleOf: (code: string) => string): string {
  return codes.map(({ code, count }) => `${titleOf(code)} (${count})`).join(', ');
}

function* certificate({ certificateExpiresAt, now }: DeploymentEvidence): Generator<Finding> {
  if (certificateExpiresAt === undefined) return;
  const { isSoon, text } = expiryOf(certificateExpiresAt, now);
  if (isSoon) yield { state: 'degraded', reason: words.certificate(text) };
}

/** With single-use nonces a challenge for most requests is normal. */
function* nonces({ minute, policy }: DeploymentEvidence): Generator<Finding> {
  const { requests, challenges } = minute;
  if (policy === 'single-use' || requests < ENOUGH || challenges * 2 < requests) return;
  yield {
    state: 'degraded',
    reason: words.noncesExpire(challenges, requests),
  };
}

function summarize(findings: readonly Finding[]): Condition {
  const broken = findings.filter(({ state }) => state === 'broken');
  const rest = findings.filter(({ state }) => state !== 'broken');
  const reasons = [...broken, ...rest].map(({ reason }) => reason);
  return { state: broken.length > 0 ? 'broken' : 'degraded', reasons };
}

function sentence(text: string): string {
  const capital = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(capital) ? capital : `${capital}.`;
}
