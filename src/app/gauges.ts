import type { Gauge } from 'prom-client';
import type { Audit } from '../audit/audit.ts';
import { slices } from '../base/steps.ts';
import { NONCE_POLICIES } from '../challenges/store/store.ts';
import { apiKeysOf, keyName } from '../config/api-keys.ts';
import type { Config } from '../config/schema.ts';
import {
  type CredentialVersionState,
  type DeploymentState,
  EGRESS,
  isEgressMissing,
} from '../control/state.ts';
import type { AddressView } from '../control/view.ts';
import type { Listener } from '../gateway/listener.ts';
import type { Deployment } from '../gateway/relay.ts';
import type { Metrics } from '../metrics/metrics.ts';

/** Values of the label `state` of `credential_state`. */
const CREDENTIAL_STATES = [
  'in-use',
  'candidate',
  'waiting',
  'fallback',
  'refused',
] as const satisfies readonly CredentialVersionState['state'][];

const HEALTH_STATES = ['unknown', 'healthy', 'failing'] as const satisfies readonly AddressView['health'][];

const CIRCUIT_VALUES = { closed: 0, 'half-open': 0.5, open: 1 } as const satisfies Record<
  AddressView['circuit'],
  number
>;

const CONNECTION_STATES = ['connected', 'free', 'running', 'pending', 'limit'] as const;

type Samples = readonly (readonly [labels: Readonly<Record<string, string>>, value: number | undefined])[];

/** One sample for each value of a label: 1 for the one that holds, 0 for the others. */
function flags(label: string, values: readonly string[], held: string, labels = {}): Samples {
  return values.map((value) => [{ ...labels, [label]: value }, value === held ? 1 : 0]);
}

/** The samples of a deployment for each gauge that is read, not counted; without a value there is none. */
const GAUGES = {
  nonceAge: ({ nonce }) => [[{}, nonce.age]],
  nonceLifetime: ({ nonce }) => [[{}, nonce.lifetime]],
  noncePolicy: ({ nonce }) => flags('policy', NONCE_POLICIES, nonce.policy),
  upstreamConnections: ({ connections }) =>
    CONNECTION_STATES.map((state) => [{ state }, connections[state]] as const),
  upstreamCertificateExpiry: ({ tls }) => [[{}, tls && tls.chain[0].expiresAt / 1000]],
  credentialState: ({ credentials }) =>
    credentials.flatMap(({ credential, version, state }) =>
      flags('state', CREDENTIAL_STATES, state, { credential, version }),
    ),
  circuitState: ({ credentials, addresses }) => [
    [{ circuit: 'credential' }, credentials.some(({ serves }) => !serves) ? 1 : 0],
    ...addresses.map(({ address, circuit }) => [{ circuit: address }, CIRCUIT_VALUES[circuit]] as const),
  ],
  upstreamHealth: ({ addresses }) =>
    addresses.flatMap(({ address, health }) => flags('state', HEALTH_STATES, health, { address })),
  paused: ({ outcomes, pauses }) => (outcomes.length === 0 ? [] : [[{}, pauses.length > 0 ? 1 : 0]]),
  egressAddressPresent: ({ egress }) => (egress.length === 0 ? [] : [[{}, isEgressMissing(egress) ? 0 : 1]]),
  egressAddressState: ({ egress }) =>
    egress.length < 2
      ? []
      : egress.flatMap(({ address, status }) => flags('state', EGRESS, status, { egress: address })),
} as const satisfies Partial<Record<keyof Metrics, (state: DeploymentState) => Samples>>;

/**
 * Sets the gauges that are read, not counted. Those of deployments, versions and states that are gone disappear. Each
 * gauge is set in one turn, so that no other scrape finds a part of it; between them requests are served.
 */
export async function setGauges(metrics: Metrics, deployments: readonly DeploymentState[]): Promise<void> {
  const pause = slices();
  for (const name of Object.keys(GAUGES) as (keyof typeof GAUGES)[]) {
    const gauge: Gauge = metrics[name];
    const samplesOf: (state: DeploymentState) => Samples = GAUGES[name];
    gauge.reset();
    for (const state of deployments) {
      for (const [labels, value] of samplesOf(state)) {
        if (value !== undefined) gauge.set({ deployment: state.name, ...labels }, value);
      }
    }
    await pause();
  }
}

/** Sets the counters that requests do not change themselves. */
export function setCounts(metrics: Metrics, deployments: readonly Deployment[], audit: Audit): void {
  setAuditCounts(metrics, audit);
  metrics.deployment('').showResults();
  for (const { name: deployment, upstream } of deployments) {
    metrics.deployment(deployment).showResults();
    // Prometheus sees no increase in a counter that first appears with 1.
    for (const name of upstream.outcomes?.names ?? []) metrics.deployment(deployment).outcome(name).inc(0);
  }
}

/** The log keeps these counts itself, which costs least on the request path. */
export function setAuditCounts(metrics: Metrics, { counts, failing, signed }: Audit): void {
  const { auditRecords, auditFailures } = metrics;
  auditRecords.reset();
  auditRecords.inc(counts.records);
  auditFailures.reset();
  auditFailures.inc({ sink: 'file' }, counts.failures);
  metrics.auditFailing.set({ sink: 'file' }, failing === undefined ? 0 : 1);
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

/** Sets when the files of `tls` of each listener expire; 0 without TLS. */
export function setExpiries(metrics: Metrics, listeners: readonly Listener[]): void {
  for (const { name: listener, tls } of listeners) {
    metrics.listenCertificateExpiry.set({ listener }, tls?.expires ?? 0);
    metrics.crlExpiry.set({ listener }, tls?.crlExpires ?? 0);
  }
}
