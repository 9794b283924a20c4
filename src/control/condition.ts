import type { DeploymentInterval } from './interval.ts';
import type { Condition, State } from './view.ts';

const DAY_MS = 86_400_000;
/** Certificates that are renewed automatically have been renewed by then. */
const EXPIRES_SOON_MS = 14 * DAY_MS;
/** Minimum number of requests for a judgement by shares. */
const ENOUGH = 10;

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
  const findings = [...known(evidence), ...failing(evidence), ...certificate(evidence), ...nonces(evidence)];
  if (findings.length > 0) return summarize(findings);
  const { requests, refused, seconds } = evidence.minute;
  if (requests === 0) return { state: 'ok', reasons: ['No errors and no requests.'] };
  const refusals = refused === 0 ? '' : `, ${refused} refused to clients`;
  const served = `${countOf(requests, 'request')} in the last ${span(seconds)}: none failed${refusals}.`;
  return { state: 'ok', reasons: [served] };
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
): Condition {
  const own = failedChecks.map(
    (reason): Finding => ({ state: served ? 'degraded' : 'broken', reason: sentence(reason) }),
  );
  const notOk = deployments.filter(({ state }) => state !== 'ok');
  const allBroken = deployments.length > 0 && deployments.every(({ state }) => state === 'broken');
  const theirs = notOk.map(
    ({ name, state }): Finding => ({
      state: allBroken ? 'broken' : 'degraded',
      reason: `${name} is ${state}.`,
    }),
  );
  const attention = warnings.map(sentence);
  if (own.length + theirs.length > 0) {
    const { state, reasons } = summarize([...own, ...theirs]);
    return { state, reasons: [...reasons, ...attention] };
  }
  return {
    state: 'ok',
    reasons: [`${countOf(deployments.length, 'deployment')}, nothing wrong.`, ...attention],
  };
}

function* known({ error, serving }: DeploymentEvidence): Generator<Finding> {
  if (error !== '') yield { state: serving ? 'degraded' : 'broken', reason: sentence(error) };
}

function* failing({ minute, titleOf }: DeploymentEvidence): Generator<Finding> {
  const { requests, errors, errorCodes, seconds } = minute;
  if (errors === 0) return;
  const causes = errorCodes.map(({ code, count }) => `${titleOf(code)} (${count})`).join(', ');
  const whole = errors === requests;
  const reason = whole
    ? `Every request of the last ${span(seconds)} failed: ${causes}.`
    : `${errors} of ${countOf(requests, 'request')} in the last ${span(seconds)} failed: ${causes}.`;
  yield { state: whole ? 'broken' : 'degraded', reason };
}

function* certificate({ certificateExpiresAt, now }: DeploymentEvidence): Generator<Finding> {
  if (certificateExpiresAt === undefined) return;
  const left = certificateExpiresAt - now;
  if (left <= 0) yield { state: 'degraded', reason: "The upstream's certificate has expired." };
  else if (left < EXPIRES_SOON_MS) {
    const days = countOf(Math.floor(left / DAY_MS), 'day');
    yield { state: 'degraded', reason: `The upstream's certificate expires in ${days}.` };
  }
}

/** With single-use nonces a challenge for most requests is normal. */
function* nonces({ minute, policy }: DeploymentEvidence): Generator<Finding> {
  const { requests, challenges } = minute;
  if (policy === 'single-use' || requests < ENOUGH || challenges * 2 < requests) return;
  yield {
    state: 'degraded',
    reason: `The upstream asked for authentication again for ${challenges} of ${requests} requests: its nonces expire early.`,
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

function countOf(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? '' : 's'}`;
}

function span(seconds: number): string {
  return seconds > 50 ? 'minute' : `${Math.max(1, Math.round(seconds))} s`;
}
