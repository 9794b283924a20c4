import type { Audit } from '../audit/audit.ts';
import type { SinkState } from '../audit/sinks/audit-sinks.ts';
import { NONCE_POLICIES } from '../challenges/store/store.ts';
import type { Config } from '../config/schema.ts';
import {
  type AddressCheck,
  type Check,
  deploymentCheck,
  type PauseCheck,
  type Readiness,
  simpleCheck,
} from '../control/readiness.ts';
import type { Deployment } from '../gateway/gateway.ts';
import type { Metrics } from '../metrics/metrics.ts';
import type { CircuitState, HealthState } from '../upstream/address-state.ts';
import type { Pause } from '../upstream/pauses.ts';
import type { Upstream } from '../upstream/upstream.ts';
import type { CredentialState, UpstreamAddress } from '../upstream/upstream-address.ts';

/** Values of the label `state` of `credential_state`. */
const STATE_LABELS = [
  'in-use',
  'candidate',
  'waiting',
  'fallback',
  'refused',
] as const satisfies readonly CredentialState['state'][];

const HEALTH_STATES = ['unknown', 'healthy', 'failing'] as const satisfies readonly HealthState[];

const CIRCUIT_VALUES = { closed: 0, 'half-open': 0.5, open: 1 } as const satisfies Record<
  CircuitState,
  number
>;

const CONNECTION_STATES = ['connected', 'free', 'running', 'pending', 'limit'] as const;

/** State of the data plane. */
export type Stage = 'starting' | 'serving' | 'draining';

const NOT_SERVING = {
  starting: 'not ready: the gateway is starting',
  serving: undefined,
  draining: 'is shutting down: send requests to another gateway',
} as const satisfies Record<Stage, string | undefined>;

export interface ReadinessParts {
  readonly stage: Stage;
  readonly storeUp: boolean;
  readonly audit: Audit;
  readonly deployments: readonly Deployment[];
  /** How many upstreams must be reachable. */
  readonly wanted: Config['readiness'];
}

/** Returns the content of `/readyz`, but for the check of the configuration. */
export async function readiness(parts: ReadinessParts): Promise<Readiness> {
  const { stage, storeUp, audit, deployments, wanted } = parts;
  const { failing } = audit;
  const planes = simpleCheck('data-plane', NOT_SERVING[stage]);
  const store = simpleCheck(
    'store',
    storeUp ? undefined : 'Redis is unreachable: nonces are not shared with other replicas',
  );
  const written = failing && `the audit log cannot be written: ${failing}`;
  const recorder = simpleCheck('audit', written ?? audit.retentionHeld);
  const upstreams = await Promise.all(deployments.map(deploymentHealth));
  const checks = [planes, store, recorder, ...streamChecks(audit), ...upstreams.map(({ check }) => check)];
  const served =
    planes.ok && !audit.refusing && upstreams.some(({ serves }) => serves) && reaches(deployments, wanted);
  const status = !served ? 'unready' : checks.every(({ ok }) => ok) ? 'ready' : 'degraded';
  return { status, checks };
}

/** Adds a check, which by itself never makes the gateway unready, after the first one. */
export function withCheck({ status, checks }: Readiness, check: Check): Readiness {
  const [planes, ...others] = checks;
  const all = planes === undefined ? [check] : [planes, check, ...others];
  return { status: status === 'ready' && !check.ok ? 'degraded' : status, checks: all };
}

function reaches(deployments: readonly Deployment[], wanted: Config['readiness']): boolean {
  if (wanted === 'any-upstream') return deployments.some(({ upstream }) => isReachable(upstream));
  return wanted === 'gateway' || deployments.every(({ upstream }) => isReachable(upstream));
}

/** True if an address of the upstream is not failing. */
export function isReachable({ addresses }: Upstream): boolean {
  return addresses.some(({ state }) => state.health !== 'failing');
}

/** Returns a check for each audit sink. */
export function sinkChecks(sinks: readonly SinkState[]): Check[] {
  return sinks.map(({ name, failing }) =>
    simpleCheck(`audit-sink-${name}`, failing && `the audit sink gets nothing: ${failing}`),
  );
}

function streamChecks({ sink }: Audit): Check[] {
  if (sink === undefined) return [];
  const { failing } = sink;
  return [simpleCheck('audit-stream', failing && `the audit stream is unreachable: ${failing}`)];
}

/** Updates the counters that requests do not change themselves. */
export function observeCounts(metrics: Metrics, deployments: readonly Deployment[], audit: Audit): void {
  observeAudit(metrics, audit);
  for (const { name: deployment, upstream } of deployments) {
    // Prometheus sees no increase in a counter that first appears with 1.
    for (const name of upstream.outcomes?.names ?? []) metrics.deployment(deployment).outcome(name).inc(0);
  }
}

/** Updates the gauges that are read, not counted. */
export async function observeGauges(metrics: Metrics, deployments: readonly Deployment[]): Promise<void> {
  const addresses = await Promise.all(deployments.map(({ upstream }) => upstream.hasEgressAddress()));
  const { egressAddressPresent } = metrics;
  forgetAll(metrics);
  for (const [index, { name: deployment, upstream }] of deployments.entries()) {
    observeNonces(metrics, deployment, upstream);
    observeConnections(metrics, deployment, upstream);
    observeCredentials(metrics, deployment, upstream);
    observePauses(metrics, deployment, upstream);
    observeAddresses(metrics, deployment, upstream);
    const present = addresses[index];
    if (present !== undefined) egressAddressPresent.set({ deployment }, present ? 1 : 0);
  }
}

/** The log keeps these counts itself, which costs least on the request path. */
export function observeAudit({ auditRecords, auditFailures }: Metrics, { counts, sink }: Audit): void {
  auditRecords.reset();
  auditRecords.inc(counts.records);
  auditFailures.reset();
  auditFailures.inc({ sink: 'file' }, counts.failures);
  if (sink !== undefined) auditFailures.inc({ sink: 'redis' }, sink.failures);
}

/** Resets all gauges, so that removed deployments, versions and states disappear. */
function forgetAll(metrics: Metrics): void {
  const { nonceAge, nonceLifetime, noncePolicy, credentialState, circuitState } = metrics;
  const { upstreamConnections, upstreamCertificateExpiry, upstreamHealth, egressAddressPresent, paused } =
    metrics;
  for (const gauge of [
    nonceAge,
    nonceLifetime,
    noncePolicy,
    credentialState,
    circuitState,
    upstreamConnections,
    upstreamHealth,
    upstreamCertificateExpiry,
    egressAddressPresent,
    paused,
  ]) {
    gauge.reset();
  }
}

function observeNonces(metrics: Metrics, deployment: string, upstream: Upstream): void {
  const { nonceAge, nonceLifetime, noncePolicy } = metrics;
  for (const policy of NONCE_POLICIES) {
    noncePolicy.set({ deployment, policy }, policy === upstream.noncePolicy ? 1 : 0);
  }
  const { nonceAgeMs, nonceLifetimeMs } = upstream;
  if (nonceAgeMs !== undefined) nonceAge.set({ deployment }, nonceAgeMs / 1000);
  if (nonceLifetimeMs !== undefined) nonceLifetime.set({ deployment }, nonceLifetimeMs / 1000);
}

function observeCredentials(metrics: Metrics, deployment: string, { credentials }: Upstream): void {
  const { credentialState, circuitState } = metrics;
  for (const { credential, version, state } of credentials) {
    for (const label of STATE_LABELS) {
      credentialState.set({ deployment, credential, version, state: label }, label === state ? 1 : 0);
    }
  }
  const isRefused = credentials.some(({ serves }) => !serves);
  circuitState.set({ deployment, circuit: 'credential' }, isRefused ? 1 : 0);
}

function observeAddresses(
  { circuitState, upstreamHealth }: Metrics,
  deployment: string,
  upstream: Upstream,
): void {
  for (const { address, state: shown } of upstream.addresses) {
    circuitState.set({ deployment, circuit: address }, CIRCUIT_VALUES[shown.circuit]);
    for (const state of HEALTH_STATES) {
      upstreamHealth.set({ deployment, address, state }, state === shown.health ? 1 : 0);
    }
  }
}

function observePauses(metrics: Metrics, deployment: string, { outcomes }: Upstream): void {
  if (outcomes === undefined) return;
  metrics.paused.set({ deployment }, outcomes.pauses.length > 0 ? 1 : 0);
}

function observeConnections(metrics: Metrics, deployment: string, upstream: Upstream): void {
  const { connectionStats, tlsSeen } = upstream;
  for (const state of CONNECTION_STATES) {
    metrics.upstreamConnections.set({ deployment, state }, connectionStats[state]);
  }
  if (tlsSeen !== undefined) {
    metrics.upstreamCertificateExpiry.set({ deployment }, tlsSeen.expiresAt / 1000);
  }
}

async function deploymentHealth({ name, upstream }: Deployment): Promise<{ check: Check; serves: boolean }> {
  const states = upstream.credentials;
  const egressPresent = (await upstream.hasEgressAddress()) !== false;
  const check = deploymentCheck(name, credentialErrors(states), {
    egressPresent,
    addresses: upstream.addresses.map(addressCheck),
    pauses: (upstream.outcomes?.pauses ?? []).map(pauseCheck),
  });
  return { check, serves: egressPresent && states.some(isServing) };
}

function addressCheck({ address, state }: UpstreamAddress): AddressCheck {
  const { health, age, circuit, reason } = state;
  return { address, health, age: age / 1000, circuit, reason };
}

function credentialErrors(states: readonly CredentialState[]): string[] {
  return states.flatMap(({ credential, inUse, serves, rejected }) => {
    if (inUse && !serves) {
      return [`the upstream refuses the credential ${credential}: check user name and password`];
    }
    return rejected
      ? [
          `the upstream refuses the new version of the credential ${credential}, and the old one stays: check it`,
        ]
      : [];
  });
}

function pauseCheck({ credential = '', outcome, remainingMs }: Pause): PauseCheck {
  return { credential, outcome, until: Date.now() + remainingMs };
}

/** True if requests with the credential can be served: the upstream does not refuse every version of it. */
export function isServing({ inUse, serves }: CredentialState): boolean {
  return inUse && serves;
}
