import type { Clock } from '../base/clock.ts';
import type { PlaneReport } from '../control/merge.ts';
import type { ConsoleSource, DeploymentFacts } from '../control/snapshot.ts';
import type { ReadMetrics } from '../control/totals.ts';
import type { CredentialView, ErrorView } from '../control/view.ts';
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
    auditLines: (position) => serving.auditLines(position),
  };
}

/** Returns the state of a deployment for the console, but for its errors. */
export function deploymentFacts(
  { name, upstream }: Deployment,
  setup: AppSetup,
): Omit<DeploymentFacts, 'error'> {
  const { noncePolicy, nonceAgeMs, nonceLifetimeMs, credentials, tlsSeen } = upstream;
  return {
    name,
    origin: setup.config.deployments[name]?.baseUrl.join(', ') ?? '',
    serving: credentials.some(isServing) && isReachable(upstream),
    nonce: {
      policy: noncePolicy,
      ...(nonceAgeMs !== undefined && { age: nonceAgeMs / 1000 }),
      ...(nonceLifetimeMs !== undefined && { lifetime: nonceLifetimeMs / 1000 }),
    },
    credentials: credentials.map((each) => credentialView(each, setup)),
    addresses: upstream.addresses.map(({ address, health, circuit }) => ({
      address,
      health: health.state,
      age: health.age / 1000,
      circuit: circuit.state,
    })),
    outcomes: upstream.outcomes?.names ?? [],
    ...(tlsSeen !== undefined && { certificateExpiresAt: tlsSeen.expiresAt }),
  };
}

const STATES: Readonly<Record<CredentialState['state'], CredentialView['state']>> = {
  'in-use': 'in use',
  refused: 'refused',
  candidate: 'waits to be tried',
  fallback: 'kept as fallback',
};

function credentialView(
  { credential, version, state, inUse, rejected }: CredentialState,
  { credentials }: AppSetup,
): CredentialView {
  const set = credentials.get(credential);
  const known = [set?.current, set?.next].find((each) => each?.version === version);
  return {
    name: credential,
    version,
    state: rejected ? 'rejected by the upstream' : STATES[state],
    refused: inUse && state === 'refused',
    ...(known?.changedAt !== undefined && { changedAt: known.changedAt.getTime() }),
  };
}

/** Converts times from the gateway's clock, which has no date. */
export function errorView(error: RecentError, clock: Clock): ErrorView {
  const { deployment, code, title, detail, count, at, requestId } = error;
  const lastAt = Date.now() - (clock.now() - at);
  return { deployment, code, title, advice: detail, count, lastAt, requestId };
}
