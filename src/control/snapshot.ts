import { titleOf } from '../base/errors.ts';
import { conditionOf, gatewayCondition } from './condition.ts';
import { clientInterval, deploymentInterval, rises, round } from './interval.ts';
import type { Sampler } from './sampler.ts';
import { noTotals, type ReadMetrics, type Totals } from './totals.ts';
import type {
  AddressView,
  AuditLine,
  AuditView,
  ClientView,
  ConnectionsView,
  CredentialView,
  DeploymentDetail,
  DeploymentSettings,
  DeploymentView,
  ErrorView,
  GatewayView,
  NonceView,
  Snapshot,
  TlsView,
} from './view.ts';

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
  readonly report: () => Promise<ConsoleReport>;
  /** Names of the configured clients. */
  readonly clients: () => readonly string[];
  /** Returns the limits of the configuration for a deployment; undefined: there is no such deployment. */
  readonly settings: (deployment: string) => DeploymentSettings | undefined;
  /** Returns the audit lines after a position, oldest first, as far as they are kept; 0 is before all. */
  readonly auditLines: (position: number) => AuditLines;
}

/** The state of the gateway at one moment. */
export interface ConsoleReport {
  readonly condition: GatewayCondition;
  /** Recent errors, the newest first. */
  readonly errors: readonly ErrorView[];
  /** null if no audit log is configured. */
  readonly audit: AuditView | null;
  /** null without Redis. */
  readonly storeUp: boolean | null;
}

export interface GatewayCondition {
  /** Failing checks of the gateway itself. */
  readonly failedChecks: readonly string[];
  /** Warnings, which do not change the state. */
  readonly warnings: readonly string[];
  /** True if requests are served in spite of them. */
  readonly served: boolean;
  readonly deployments: readonly DeploymentFacts[];
}

export interface DeploymentFacts {
  readonly name: string;
  readonly origin: string;
  /** The error of its credentials or connections; empty if there is none. */
  readonly error: string;
  /** True if requests are served in spite of it. */
  readonly serving: boolean;
  readonly connections: ConnectionsView;
  readonly nonce: NonceView;
  readonly credentials: readonly CredentialView[];
  readonly addresses: readonly AddressView[];
  /** Names of the configured outcomes. */
  readonly outcomes: readonly string[];
  readonly certificateExpiresAt?: number;
  readonly tls?: TlsView;
}

export interface AuditLines {
  readonly lines: readonly AuditLine[];
  /** Position after them. */
  readonly position: number;
}

/** Collects everything that the console shows at this moment. */
export async function takeSnapshot(source: ConsoleSource, sampler: Sampler): Promise<Snapshot> {
  const [now, report] = await Promise.all([sampler.now(), source.report()]);
  const { condition, errors, audit } = report;
  const recent = sampler.before(now, NOW_MS);
  const minute = sampler.before(now, MINUTE_MS);
  const deployments = condition.deployments.map((facts) => deploymentView(facts, now, recent, minute));
  return {
    at: now.at,
    tokenAsked: source.tokenAsked,
    gateway: gatewayView(source, report, deployments),
    deployments,
    clients: clientViews(source.clients(), now, recent, minute),
    errors,
    audit,
  };
}

/** Collects the rest about one deployment; undefined: there is none of this name. */
export async function takeDetail(
  source: ConsoleSource,
  deployment: string,
): Promise<DeploymentDetail | undefined> {
  const settings = source.settings(deployment);
  const { condition } = await source.report();
  const facts = condition.deployments.find(({ name }) => name === deployment);
  if (settings === undefined || facts === undefined) return undefined;
  return { name: deployment, ...(facts.tls !== undefined && { tls: facts.tls }), settings };
}

function gatewayView(
  source: ConsoleSource,
  { condition, storeUp }: ConsoleReport,
  deployments: readonly DeploymentView[],
): GatewayView {
  const { failedChecks, served, warnings } = condition;
  return {
    ...gatewayCondition(failedChecks, served, deployments, warnings),
    version: source.version,
    node: source.node,
    startedAt: source.startedAt,
    configuredAt: source.configuredAt(),
    storeUp,
  };
}

function deploymentView(facts: DeploymentFacts, now: Totals, recent: Totals, minute: Totals): DeploymentView {
  const { name, origin, error, serving, connections, nonce } = facts;
  const { credentials, addresses, outcomes, certificateExpiresAt } = facts;
  const between = (from: Totals) =>
    deploymentInterval(from.deployments.get(name), now.deployments.get(name), now.at - from.at);
  const { requests, errors, challenges, latency, seconds } = between(recent);
  const perSecond = (count: number): number => (seconds > 0 ? round(count / seconds) : 0);
  const { inFlight } = now.deployments.get(name) ?? noTotals();
  const lastMinute = between(minute);
  const condition = conditionOf({
    minute: lastMinute,
    error,
    serving,
    policy: nonce.policy,
    certificateExpiresAt,
    now: now.at,
    titleOf: (code) => (code === '' ? 'an error of the upstream' : titleOf(code)),
  });
  return {
    name,
    origin,
    ...condition,
    perSecond: {
      requests: perSecond(requests),
      errors: perSecond(errors),
      challenges: perSecond(challenges),
    },
    ...(latency !== undefined && { latency }),
    inFlight,
    connections,
    nonce,
    credentials,
    addresses,
    outcomes: outcomes.map((each) => ({ name: each, lastMinute: lastMinute.outcomes.get(each) ?? 0 })),
    ...(certificateExpiresAt !== undefined && { certificateExpiresAt }),
  };
}

/** The configured clients, then other clients that the metrics have counted. */
function clientViews(known: readonly string[], now: Totals, recent: Totals, minute: Totals): ClientView[] {
  const names = [...new Set([...known, ...[...now.clients.keys()].sort()])];
  return names.map((name) => {
    const totals = now.clients.get(name);
    const seconds = (now.at - recent.at) / 1000;
    const { requests } = clientInterval(recent.clients.get(name), totals);
    return {
      name,
      perSecond: seconds > 0 ? round(requests / seconds) : 0,
      requests: totals?.requests ?? 0,
      refusals: rises(new Map(), totals?.refusals ?? new Map()),
      refusedLastMinute: clientInterval(minute.clients.get(name), totals).refused,
    };
  });
}
