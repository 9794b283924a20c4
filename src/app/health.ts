import type { Audit } from '../audit/audit.ts';
import { NONCE_POLICIES } from '../challenges/store/store.ts';
import type { Check, Readiness } from '../control/control.ts';
import type { Deployment } from '../gateway/gateway.ts';
import type { Metrics } from '../metrics/metrics.ts';
import type { CredentialState, Upstream } from '../upstream/upstream.ts';

/** Values of the label `state` of `credential_state`. */
const STATE_LABELS = [
  'in-use',
  'candidate',
  'fallback',
  'refused',
] as const satisfies readonly CredentialState['state'][];

const CONNECTION_STATES = ['connected', 'free', 'running', 'pending'] as const;

/** State of the data plane. */
export type Stage = 'starting' | 'serving' | 'draining';

const NOT_SERVING = {
  starting: 'not ready: the gateway is starting',
  serving: '',
  draining: 'is shutting down: send requests to another gateway',
} as const satisfies Record<Stage, string>;

/** Returns the content of `/readyz`. */
export async function readiness(
  stage: Stage,
  storeUp: boolean,
  audit: Audit,
  deployments: readonly Deployment[],
): Promise<Readiness> {
  const planes = { name: 'data-plane', ok: stage === 'serving', detail: NOT_SERVING[stage] };
  const store = {
    name: 'store',
    ok: storeUp,
    detail: storeUp ? '' : 'Redis is unreachable: nonces are not shared with other replicas',
  };
  const recorder = {
    name: 'audit',
    ok: audit.failing === undefined,
    detail: audit.failing === undefined ? '' : `the audit log cannot be written: ${audit.failing}`,
  };
  const upstreams = await Promise.all(deployments.map(deploymentHealth));
  const checks = [planes, store, recorder, ...sinkChecks(audit), ...upstreams.map(({ check }) => check)];
  const served = planes.ok && !audit.refusing && upstreams.some(({ serves }) => serves);
  const status = !served ? 'unready' : checks.every(({ ok }) => ok) ? 'ready' : 'degraded';
  return { status, checks };
}

function sinkChecks({ sink }: Audit): Check[] {
  if (sink === undefined) return [];
  const detail = sink.failing === undefined ? '' : `the audit stream is unreachable: ${sink.failing}`;
  return [{ name: 'audit-stream', ok: sink.failing === undefined, detail }];
}

/** Updates the gauges that are read, not counted. */
export async function observe(
  metrics: Metrics,
  deployments: readonly Deployment[],
  audit: Audit,
): Promise<void> {
  observeAudit(metrics, audit);
  const addresses = await Promise.all(
    deployments.map(({ upstream }) => upstream.connections.hasEgressAddress()),
  );
  const { egressAddressPresent } = metrics;
  forgetAll(metrics);
  for (const [index, { name: deployment, upstream }] of deployments.entries()) {
    observeNonces(metrics, deployment, upstream);
    observeConnections(metrics, deployment, upstream);
    observeCredentials(metrics, deployment, upstream);
    const present = addresses[index];
    if (present !== undefined) egressAddressPresent.set({ deployment }, present ? 1 : 0);
  }
}

/** The log keeps these counts itself, which costs least on the request path. */
function observeAudit({ auditRecords, auditFailures }: Metrics, { counts, sink }: Audit): void {
  auditRecords.reset();
  auditRecords.inc(counts.records);
  auditFailures.reset();
  auditFailures.inc({ sink: 'file' }, counts.failures);
  if (sink !== undefined) auditFailures.inc({ sink: 'redis' }, sink.failures);
}

/** Resets all gauges, so that removed deployments, versions and states disappear. */
function forgetAll(metrics: Metrics): void {
  const { nonceAge, nonceLifetime, noncePolicy, credentialState, circuitState } = metrics;
  const { upstreamConnections, upstreamCertificateExpiry, egressAddressPresent } = metrics;
  for (const gauge of [
    nonceAge,
    nonceLifetime,
    noncePolicy,
    credentialState,
    circuitState,
    upstreamConnections,
    upstreamCertificateExpiry,
    egressAddressPresent,
  ]) {
    gauge.reset();
  }
}

const CHECK = 'deployment:';

/** Returns the name of a deployment's check in the readiness. */
export function checkOf(deployment: string): string {
  return `${CHECK}${deployment}`;
}

/** True if a check of the readiness is about a deployment. */
export function isOfDeployment(check: string): boolean {
  return check.startsWith(CHECK);
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
  circuitState.set({ deployment }, credentials.some(({ serves }) => !serves) ? 1 : 0);
}

function observeConnections(metrics: Metrics, deployment: string, upstream: Upstream): void {
  const { stats, tlsSeen } = upstream.connections;
  for (const state of CONNECTION_STATES) {
    metrics.upstreamConnections.set({ deployment, state }, stats[state]);
  }
  if (tlsSeen !== undefined) {
    metrics.upstreamCertificateExpiry.set({ deployment }, tlsSeen.expiresAt / 1000);
  }
}

async function deploymentHealth({ name, upstream }: Deployment): Promise<{ check: Check; serves: boolean }> {
  const states = upstream.credentials;
  const problems = credentialProblems(states);
  const leaves = (await upstream.connections.hasEgressAddress()) !== false;
  if (!leaves) {
    problems.push('the address of egress.localAddress is not on this host: add it to an interface');
  }
  const check = { name: checkOf(name), ok: problems.length === 0, detail: problems.join('; ') };
  return { check, serves: leaves && states.some(isServing) };
}

function credentialProblems(states: readonly CredentialState[]): string[] {
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

/** True if requests with the credential can be served: the upstream does not refuse every version of it. */
export function isServing({ inUse, serves }: CredentialState): boolean {
  return inUse && serves;
}
