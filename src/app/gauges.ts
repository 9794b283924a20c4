import type { Audit } from '../audit/audit.ts';
import { slices } from '../base/steps.ts';
import { NONCE_POLICIES } from '../challenges/store/store.ts';
import { apiKeysOf, keyName } from '../config/api-keys.ts';
import type { Config } from '../config/schema.ts';
import {
  type AddressState,
  type CredentialVersionState,
  type DeploymentState,
  EGRESS,
  isEgressMissing,
} from '../control/state.ts';
import type { Deployment } from '../gateway/gateway.ts';
import type { Listener } from '../gateway/listener.ts';
import type { Metrics } from '../metrics/metrics.ts';

/** Values of the label `state` of `credential_state`. */
const CREDENTIAL_STATES = [
  'in-use',
  'candidate',
  'waiting',
  'fallback',
  'refused',
] as const satisfies readonly CredentialVersionState['state'][];

const HEALTH_STATES = ['unknown', 'healthy', 'failing'] as const satisfies readonly AddressState['health'][];

const CIRCUIT_VALUES = { closed: 0, 'half-open': 0.5, open: 1 } as const satisfies Record<
  AddressState['circuit'],
  number
>;

const CONNECTION_STATES = ['connected', 'free', 'running', 'pending', 'limit'] as const;

type Deployments = readonly DeploymentState[];

/**
 * Sets the gauges that are read, not counted. Those of deployments, versions and states that are gone disappear. Each
 * gauge is set in one turn, so that no other scrape finds a part of it; between them requests are served.
 */
export async function setGauges(metrics: Metrics, deployments: Deployments): Promise<void> {
  const pause = slices();
  for (const set of [
    setNonces,
    setNoncePolicies,
    setConnections,
    setCredentials,
    setAddresses,
    setPauses,
    setEgressPresence,
    setEgressStates,
  ]) {
    set(metrics, deployments);
    await pause();
  }
}

/** Sets the counters that requests do not change themselves. */
export function setCounts(metrics: Metrics, deployments: readonly Deployment[], audit: Audit): void {
  setAuditCounts(metrics, audit);
  for (const { name: deployment, upstream } of deployments) {
    // Prometheus sees no increase in a counter that first appears with 1.
    for (const name of upstream.outcomes?.names ?? []) metrics.deployment(deployment).outcome(name).inc(0);
  }
}

/** The log keeps these counts itself, which costs least on the request path. */
export function setAuditCounts(metrics: Metrics, { counts, signed }: Audit): void {
  const { auditRecords, auditFailures } = metrics;
  auditRecords.reset();
  auditRecords.inc(counts.records);
  auditFailures.reset();
  auditFailures.inc({ sink: 'file' }, counts.failures);
  if (signed !== undefined) {
    const { unsignedSince } = signed;
    metrics.auditUnsigned.set(unsignedSince === undefined ? 0 : (performance.now() - unsignedSince) / 1000);
  }
}

/** Sets the ends of keys and rules; those of a configuration before disappear. */
export function setClientEnds(
  { clientKeyExpiry, clientRuleEnd }: Metrics,
  { clients }: Pick<Config, 'clients'>,
): void {
  clientKeyExpiry.reset();
  clientRuleEnd.reset();
  for (const { id: client, identify, allow } of clients) {
    for (const key of apiKeysOf(identify)) {
      if (key.expires !== undefined) clientKeyExpiry.set({ client, key: keyName(key) }, key.expires / 1000);
    }
    for (const [index, { ends }] of allow.entries()) {
      if (ends !== undefined) clientRuleEnd.set({ client, rule: `allow[${index}]` }, ends / 1000);
    }
  }
}

function setNonces({ nonceAge, nonceLifetime }: Metrics, deployments: Deployments): void {
  nonceAge.reset();
  nonceLifetime.reset();
  for (const { name: deployment, nonce } of deployments) {
    if (nonce.age !== undefined) nonceAge.set({ deployment }, nonce.age);
    if (nonce.lifetime !== undefined) nonceLifetime.set({ deployment }, nonce.lifetime);
  }
}

function setNoncePolicies({ noncePolicy }: Metrics, deployments: Deployments): void {
  noncePolicy.reset();
  for (const { name: deployment, nonce } of deployments) {
    for (const policy of NONCE_POLICIES) {
      noncePolicy.set({ deployment, policy }, policy === nonce.policy ? 1 : 0);
    }
  }
}

function setConnections(metrics: Metrics, deployments: Deployments): void {
  const { upstreamConnections, upstreamCertificateExpiry } = metrics;
  upstreamConnections.reset();
  upstreamCertificateExpiry.reset();
  for (const { name: deployment, connections, certificateExpiresAt } of deployments) {
    for (const state of CONNECTION_STATES) upstreamConnections.set({ deployment, state }, connections[state]);
    if (certificateExpiresAt !== undefined) {
      upstreamCertificateExpiry.set({ deployment }, certificateExpiresAt / 1000);
    }
  }
}

function setCredentials({ credentialState }: Metrics, deployments: Deployments): void {
  credentialState.reset();
  for (const { name: deployment, credentials } of deployments) {
    for (const { credential, version, state } of credentials) {
      for (const label of CREDENTIAL_STATES) {
        credentialState.set({ deployment, credential, version, state: label }, label === state ? 1 : 0);
      }
    }
  }
}

function setAddresses({ circuitState, upstreamHealth }: Metrics, deployments: Deployments): void {
  circuitState.reset();
  upstreamHealth.reset();
  for (const { name: deployment, credentials, addresses } of deployments) {
    const isRefused = credentials.some(({ serves }) => !serves);
    circuitState.set({ deployment, circuit: 'credential' }, isRefused ? 1 : 0);
    for (const { address, circuit, health } of addresses) {
      circuitState.set({ deployment, circuit: address }, CIRCUIT_VALUES[circuit]);
      for (const state of HEALTH_STATES) {
        upstreamHealth.set({ deployment, address, state }, state === health ? 1 : 0);
      }
    }
  }
}

function setPauses({ paused }: Metrics, deployments: Deployments): void {
  paused.reset();
  for (const { name: deployment, outcomes, pauses } of deployments) {
    if (outcomes.length > 0) paused.set({ deployment }, pauses.length > 0 ? 1 : 0);
  }
}

function setEgressPresence({ egressAddressPresent }: Metrics, deployments: Deployments): void {
  egressAddressPresent.reset();
  for (const { name: deployment, egress } of deployments) {
    if (egress.length > 0) egressAddressPresent.set({ deployment }, isEgressMissing(egress) ? 0 : 1);
  }
}

function setEgressStates({ egressAddressState }: Metrics, deployments: Deployments): void {
  egressAddressState.reset();
  for (const { name: deployment, egress } of deployments) {
    if (egress.length < 2) continue;
    for (const { address, status } of egress) {
      for (const state of EGRESS) {
        egressAddressState.set({ deployment, egress: address, state }, state === status ? 1 : 0);
      }
    }
  }
}

/** Sets when the files of `tls` of each listener expire; 0 without TLS. */
export function setExpiries(metrics: Metrics, listeners: readonly Listener[]): void {
  for (const { name: listener, tls } of listeners) {
    metrics.listenCertificateExpiry.set({ listener }, tls?.expires ?? 0);
    metrics.crlExpiry.set({ listener }, tls?.crlExpires ?? 0);
  }
}
