import type { Clock } from '../base/clock.ts';
import type { Client } from '../config/clients.ts';
import type { Config } from '../config/schema.ts';
import type { PlaneReport } from '../control/merge.ts';
import type { ConsoleSource, DeploymentFacts } from '../control/snapshot.ts';
import type { ReadMetrics } from '../control/totals.ts';
import type { CredentialView, DeploymentSettings, ErrorView, LimitsView } from '../control/view.ts';
import type { RecentError } from '../gateway/error-log.ts';
import type { Deployment } from '../gateway/gateway.ts';
import type { BuildInfo } from '../metrics/metrics.ts';
import type { AppSetup } from '../setup/setup.ts';
import type { CredentialState } from '../upstream/upstream-address.ts';
import { isReachable, isServing } from './health.ts';
import type { Serving } from './serving.ts';

export interface ConsoleParts {
  readonly values: ReadMetrics;
  readonly serving: Serving;
  readonly build: BuildInfo;
  /** The active setup, and its time of activation in Unix milliseconds. */
  readonly setup: () => AppSetup;
  readonly configuredAt: () => number;
  readonly report: () => Promise<PlaneReport>;
}

/** Makes the console's view of the gateway. */
export function consoleSource(parts: ConsoleParts): ConsoleSource {
  const { values, serving, build, setup, configuredAt, report } = parts;
  return {
    values,
    version: build.version,
    node: build.node,
    tokenAsked: setup().config.control.tokenSha256 !== undefined,
    startedAt: Date.now(),
    configuredAt,
    report,
    clients: () => setup().config.clients.map(({ id }) => id),
    settings: (deployment) => deploymentSettings(deployment, setup().config),
    auditLines: (position) => serving.auditLines(position),
  };
}

/** Returns the state of a deployment for the console, but for its errors. */
export function deploymentFacts(
  { name, upstream }: Deployment,
  setup: AppSetup,
): Omit<DeploymentFacts, 'error'> {
  const { noncePolicy, nonceAgeMs, nonceLifetimeMs, credentials, tlsSeen } = upstream;
  const { connected, running, pending, limit } = upstream.connectionStats;
  return {
    name,
    origin: setup.config.deployments[name]?.baseUrl.join(', ') ?? '',
    serving: credentials.some(isServing) && isReachable(upstream),
    connections: { open: connected, busy: running, queued: pending, limit },
    nonce: {
      policy: noncePolicy,
      ...(nonceAgeMs !== undefined && { age: nonceAgeMs / 1000 }),
      ...(nonceLifetimeMs !== undefined && { lifetime: nonceLifetimeMs / 1000 }),
    },
    credentials: credentials.map((each) => credentialView(each, setup)),
    addresses: upstream.addresses.map(({ address, state: { health, age, circuit } }) => ({
      address,
      health,
      age: age / 1000,
      circuit,
    })),
    outcomes: upstream.outcomes?.names ?? [],
    ...(tlsSeen !== undefined && {
      certificateExpiresAt: tlsSeen.expiresAt,
      tls: { protocol: tlsSeen.protocol, chain: tlsSeen.chain },
    }),
  };
}

/** Returns the limits that apply to a deployment; undefined: there is none of this name. */
function deploymentSettings(name: string, { deployments, clients }: Config): DeploymentSettings | undefined {
  const deployment = Object.hasOwn(deployments, name) ? deployments[name] : undefined;
  if (deployment === undefined) return undefined;
  const { connections, timeouts, body, retry, limits } = deployment;
  const { connect, response, idle, total } = timeouts;
  return {
    connections,
    timeouts: {
      connect: connect / 1000,
      response: response / 1000,
      idle: idle / 1000,
      total: total / 1000,
    },
    body,
    retries: retry.attempts,
    ...(limits !== undefined && { limits: limitsView(limits) }),
    clients: clients.flatMap(({ id, allow, limits: own }) =>
      own !== undefined && allow.some((rule) => rule.deployment === name)
        ? [{ client: id, limits: limitsView(own) }]
        : [],
    ),
  };
}

function limitsView({ rate, concurrent, daily }: NonNullable<Client['limits']>): LimitsView {
  return {
    ...(rate !== undefined && { perSecond: rate.perSecond, burst: rate.burst }),
    ...(concurrent !== undefined && { concurrent }),
    ...(daily !== undefined && { daily }),
  };
}

const STATES: Readonly<Record<CredentialState['state'], CredentialView['state']>> = {
  'in-use': 'in use',
  refused: 'refused',
  candidate: 'waits to be tried',
  waiting: 'waits for the upstream',
  fallback: 'kept as fallback',
};

function credentialView(
  { credential, version, state, inUse, rejected }: CredentialState,
  { credentials }: AppSetup,
): CredentialView {
  const set = credentials.get(credential);
  const isCurrent = set?.current.version === version;
  const known = isCurrent ? set.current : set?.next?.version === version ? set.next : undefined;
  return {
    name: credential,
    version,
    state: rejected ? 'rejected by the upstream' : STATES[state],
    refused: inUse && state === 'refused',
    ...(known !== undefined && { role: isCurrent ? 'current' : 'next' }),
    ...(known?.changedAt !== undefined && { changedAt: known.changedAt.getTime() }),
  };
}

/** Converts times from the gateway's clock, which has no date. */
export function errorView(error: RecentError, clock: Clock): ErrorView {
  const { deployment, code, title, detail, count, at, requestId } = error;
  const lastAt = Date.now() - (clock.now() - at);
  return { deployment, code, title, advice: detail, count, lastAt, requestId };
}
