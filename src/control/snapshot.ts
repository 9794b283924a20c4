import { findingText } from '../audit/findings.ts';
import { statusOfCode, titleOf } from '../base/errors.ts';
import { capitalized } from '../base/units.ts';
import { expiryOf } from '../transport/upstream-tls.ts';
import type { Sampler } from './history.ts';
import type { RulePlace } from './map.ts';
import { type Problem as CheckProblem, deploymentErrors, gatewayErrors, warningsOf } from './readiness.ts';
import {
  type AuditState,
  type CredentialVersionState,
  type DeploymentState,
  type GatewayState,
  mergeAudits,
  statusOf,
} from './state.ts';
import {
  type DeploymentInterval,
  intervalOf,
  intervalOfAll,
  NO_CLIENT,
  type ReadMetrics,
  rateOf,
  reuseOf,
  rises,
  sumCodes,
  type Totals,
} from './totals.ts';
import {
  type AuditLine,
  type AuditView,
  type ClientView,
  type CodeCount,
  type Condition,
  type CredentialView,
  type DeploymentDetail,
  type DeploymentSettings,
  type DeploymentView,
  type Problem,
  type Snapshot,
  STATES,
  type State,
} from './view.ts';
import { WORDS } from './words.ts';

/** Current rates cover the last seconds; conditions are judged by the last minute. */
const NOW_MS = 5_000;
const MINUTE_MS = 60_000;

/** The gateway's data for the console, beyond its metrics. */
export interface ConsoleSource {
  readonly values: ReadMetrics;
  readonly version: string;
  readonly node: string;
  readonly tokenAsked: boolean;
  /** Unix milliseconds. */
  readonly startedAt: number;
  readonly configuredAt: () => number;
  readonly state: () => Promise<GatewayState>;
  /** Names of the configured clients. */
  readonly clients: () => readonly string[];
  /** Rules of all clients, also of the anonymous one. */
  readonly rules: () => readonly RulePlace[];
  /** Returns the limits of the configuration for a deployment; undefined: there is no such deployment. */
  readonly settings: (deployment: string) => DeploymentSettings | undefined;
  /** Returns the audit lines after a position, oldest first, as far as they are kept; 0 is before all. */
  readonly auditLines: (position: number) => AuditLines;
}

export interface AuditLines {
  readonly lines: readonly AuditLine[];
  /** Position after them. */
  readonly position: number;
}

/** Collects everything that the console shows at this moment. */
export async function takeSnapshot(source: ConsoleSource, sampler: Sampler): Promise<Snapshot> {
  const [now, state] = await Promise.all([sampler.now(), source.state()]);
  const counts = { now, recent: sampler.before(now, NOW_MS), minute: sampler.before(now, MINUTE_MS) };
  const { serves, workers } = state;
  const deployments = state.deployments.map((each) => deploymentView(each, counts));
  const errors = [...gatewayErrors(state), ...unroutedErrors(counts)];
  return {
    at: now.at,
    tokenAsked: source.tokenAsked,
    gateway: {
      ...gatewayCondition(errors, serves, deployments, warningsOf(state)),
      version: source.version,
      node: source.node,
      startedAt: source.startedAt,
      configuredAt: source.configuredAt(),
      storeUp: state.storeUp,
      listeners: state.listeners,
      processes: state.processes,
      workers: workers && { serving: workers.serving, configured: workers.configured },
    },
    total: trafficOf(intervalOfAll(counts.recent, now)),
    deployments,
    clients: clientViews(source.clients(), counts),
    errors: state.errors.map((error) => ({
      ...error,
      title: titleOf(error.code),
      status: statusOfCode(error.code),
    })),
    audit: auditView([state.audit, workers?.audit].flatMap((audit) => audit ?? [])),
  };
}

/** Collects the rest about one deployment; undefined: there is none of this name. */
export async function takeDetail(
  source: ConsoleSource,
  deployment: string,
): Promise<DeploymentDetail | undefined> {
  const settings = source.settings(deployment);
  const { deployments } = await source.state();
  const found = deployments.find(({ name }) => name === deployment);
  if (settings === undefined || found === undefined) return undefined;
  return { ...(found.tls !== undefined && { tls: found.tls }), settings };
}

/** The metrics' counts now, and of the last seconds and the last minute. */
interface Counts {
  readonly now: Totals;
  readonly recent: Totals;
  readonly minute: Totals;
}

function deploymentView(state: DeploymentState, { now, recent, minute }: Counts): DeploymentView {
  const { name, origin, connections, nonce, outcomes } = state;
  const lastMinute = intervalOf(name, minute, now);
  const { connected, running, pending, limit } = connections;
  return {
    name,
    origin,
    ...conditionOf(state, deploymentErrors(state), lastMinute, now.at),
    ...trafficOf(intervalOf(name, recent, now)),
    connections: { open: connected, busy: running, queued: pending, limit },
    nonce,
    credentials: state.credentials.map(credentialView),
    addresses: state.addresses,
    egress: state.egress.map(({ address, status, outcome }) => ({
      address,
      status,
      state: WORDS.egress[status](outcome),
    })),
    outcomes: outcomes.map((each) => ({ name: each, lastMinute: lastMinute.outcomes.get(each) ?? 0 })),
  };
}

function trafficOf(interval: DeploymentInterval): Snapshot['total'] {
  const { requests, errors, refused, challenges, latency, inFlight, seconds } = interval;
  return {
    perSecond: {
      requests: rateOf(requests, seconds),
      errors: rateOf(errors, seconds),
      refused: rateOf(refused, seconds),
      challenges: rateOf(challenges, seconds),
    },
    ...(latency !== undefined && { latency }),
    reuse: reuseOf(interval),
    inFlight,
  };
}

function credentialView(state: CredentialVersionState): CredentialView {
  const { credential, version, inUse, role, changedAt } = state;
  const status = statusOf(state);
  return {
    name: credential,
    version,
    status,
    state: WORDS.credential[status],
    refused: inUse && status === 'refused',
    ...(role !== undefined && { role }),
    ...(changedAt !== undefined && { changedAt }),
  };
}

function auditView(audits: readonly AuditState[]): AuditView | null {
  if (audits.length === 0) return null;
  const { records, failures, failing, integrityErrors } = mergeAudits(audits);
  const altered = integrityErrors.map((each) => WORDS.chain.altered(findingText(each)));
  return {
    ...(failing.length > 0 && { failing: failing.join('; ') }),
    records,
    failures,
    chain:
      altered.length > 0
        ? { state: 'altered', detail: altered.join(' ') }
        : { state: 'intact', detail: WORDS.chain.intact },
  };
}

/** The configured clients, then other clients that the metrics have counted. */
function clientViews(known: readonly string[], { now, recent, minute }: Counts): ClientView[] {
  const names = [...new Set([...known, ...[...now.clients.keys()].sort()])];
  const seconds = (now.at - recent.at) / 1000;
  return names.map((name) => {
    const at = ({ clients }: Totals) => clients.get(name) ?? NO_CLIENT;
    const { requests, refusals, lastSeen } = at(now);
    return {
      name,
      perSecond: rateOf(requests - at(recent).requests, seconds),
      requests,
      lastSeen,
      refusals: rises(new Map(), refusals),
      refusedLastMinute: sumCodes(rises(at(minute).refusals, refusals)),
    };
  });
}

/** Minimum number of requests for a judgement by shares. */
const ENOUGH = 10;
/** Share of refused requests from which a deployment is degraded. */
const REFUSED_SHARE = 0.5;

const { condition: words, next } = WORDS;

interface Finding extends CheckProblem {
  readonly state: State;
}

type Evidence = Pick<DeploymentState, 'serves' | 'nonce' | 'tls'>;

/**
 * Returns the state of a deployment and the reasons for it. `problems`: what readiness says of it; `now`: Unix
 * milliseconds.
 */
export function conditionOf(
  state: Evidence,
  problems: readonly CheckProblem[],
  minute: DeploymentInterval,
  now: number,
): Condition {
  const findings = [...findingsIn(state, problems, minute, now)];
  if (findings.length > 0) return summarize(findings);
  const { requests, refused, seconds } = minute;
  const reason = requests === 0 ? words.quiet : words.served(requests, refused, seconds);
  return { state: 'ok', reasons: [reason], next: '' };
}

function* findingsIn(
  { serves, nonce, tls }: Evidence,
  problems: readonly CheckProblem[],
  minute: DeploymentInterval,
  now: number,
): Generator<Finding> {
  const { requests, errors, refused, awaited, refusedCodes, seconds } = minute;
  for (const problem of problems) yield { ...problem, state: serves ? 'degraded' : 'down' };
  if (errors > 0) yield failing(minute);
  const isEnough = requests >= ENOUGH;
  // A client that is refused most of the time has a fault, or meets one of the configuration.
  if (isEnough && refused >= requests * REFUSED_SHARE) {
    const reason = words.refused(refused, requests, seconds, causesOf(refusedCodes));
    yield { state: 'degraded', reason, next: next.clientsRefused };
  }
  if (tls !== undefined) {
    const { isSoon, text } = expiryOf(tls.chain[0].expiresAt, now);
    if (isSoon) yield { state: 'degraded', reason: words.certificate(text), next: next.certificate };
  }
  // With single-use nonces a challenge for most requests is normal.
  if (nonce.policy !== 'single-use' && isEnough && awaited * 2 >= requests) {
    yield { state: 'degraded', reason: words.noncesExpire(awaited, requests), next: next.noncesExpire };
  }
}

function failing({ requests, errors, errorCodes, seconds }: DeploymentInterval): Finding {
  const causes = causesOf(errorCodes);
  const step = errorCodes.every(({ code }) => code === '') ? next.upstreamFails : next.requestsFail;
  if (errors === requests) return { state: 'down', reason: words.allFailed(seconds, causes), next: step };
  return { state: 'degraded', reason: words.someFailed(errors, requests, seconds, causes), next: step };
}

const NOT_IMPLEMENTED = 501;

/** Requests that failed before they had a deployment, none of which has them in its own condition. */
function unroutedErrors({ now, minute }: Counts): CheckProblem[] {
  const { errorCodes, seconds } = intervalOf('', minute, now);
  // Anybody can send what the gateway does not implement, unidentified, too.
  const codes = errorCodes.filter(({ code }) => statusOfCode(code) !== NOT_IMPLEMENTED);
  const errors = sumCodes(codes);
  if (errors === 0) return [];
  const reason = words.unrouted(errors, seconds, causesOf(codes));
  return [{ reason, next: next.requestsFail }];
}

function causesOf(codes: readonly CodeCount[]): string {
  const nameOf = (code: string): string => (code === '' ? words.upstreamError : titleOf(code));
  return codes.map(({ code, count }) => `${nameOf(code)} (${count})`).join(', ');
}

/**
 * Returns the state of the gateway as a whole, from its readiness and its deployments, and what is wrong. `warnings` are
 * shown, and do not change the state.
 */
export function gatewayCondition(
  failedChecks: readonly CheckProblem[],
  served: boolean,
  deployments: readonly ({ readonly name: string } & Condition)[],
  warnings: readonly string[],
): Pick<Snapshot['gateway'], 'state' | 'problems'> {
  const notOk = deployments.filter(({ state }) => state !== 'ok');
  const allDown = deployments.length > 0 && deployments.every(({ state }) => state === 'down');
  const isDown = allDown || !served;
  const isOk = failedChecks.length + notOk.length === 0;
  const problems: Problem[] = [
    ...failedChecks.map(({ reason, next: step }): Problem => {
      return { state: served ? 'degraded' : 'down', text: sentence(reason), next: sentence(step) };
    }),
    ...notOk.map(({ name, state, reasons, next: step }): Problem => {
      return { state, text: reasons[0] ?? '', next: step, deployment: name };
    }),
    ...warnings.map((text): Problem => ({ state: 'ok', text: sentence(text), next: '' })),
  ];
  return {
    state: isDown ? 'down' : isOk ? 'ok' : 'degraded',
    problems: problems.sort((a, b) => STATES.indexOf(a.state) - STATES.indexOf(b.state)),
  };
}

function summarize(findings: readonly Finding[]): Condition {
  const down = findings.filter(({ state }) => state === 'down');
  const gravestFirst = [...down, ...findings.filter(({ state }) => state !== 'down')];
  return {
    state: down.length > 0 ? 'down' : 'degraded',
    reasons: gravestFirst.map(({ reason }) => sentence(reason)),
    next: sentence(gravestFirst[0]?.next ?? ''),
  };
}

function sentence(text: string): string {
  const capital = capitalized(text);
  return /^$|[.!?]$/.test(capital) ? capital : `${capital}.`;
}
