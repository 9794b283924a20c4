import { NONCE_POLICIES } from '../challenges/store.ts';
import type { Check, Readiness } from '../control/control.ts';
import type { Deployment } from '../gateway/gateway.ts';
import type { Metrics } from '../metrics/metrics.ts';
import type { CredentialState } from '../upstream/upstream.ts';

/** The value of `credential_state`. */
const STATE_VALUES = { refused: 0, 'in-use': 1, candidate: 2, kept: 3 } as const;

/** What `/readyz` says. */
export function readiness(live: boolean, storeUp: boolean, deployments: readonly Deployment[]): Readiness {
  const planes = {
    name: 'data-plane',
    ok: live,
    detail: live ? '' : 'does not take requests: starting, or shutting down',
  };
  const store = {
    name: 'store',
    ok: storeUp,
    detail: storeUp ? '' : 'Redis is not there: nonces are not shared with other replicas',
  };
  const upstreams = deployments.map(({ name, upstream }) => ({
    states: upstream.credentials,
    check: credentialCheck(name, upstream.credentials),
  }));
  const checks = [planes, store, ...upstreams.map(({ check }) => check)];
  const served = live && upstreams.some(({ states }) => states.some(isServing));
  const status = !served ? 'unready' : checks.every(({ ok }) => ok) ? 'ready' : 'degraded';
  return { status, checks };
}

/** Brings the gauges up to date that are read, not counted. */
export function observe(metrics: Metrics, deployments: readonly Deployment[]): void {
  const { nonceAge, nonceLifetime, noncePolicy, credentialState } = metrics;
  credentialState.reset();
  for (const { name: deployment, upstream } of deployments) {
    nonceAge.remove({ deployment });
    nonceLifetime.remove({ deployment });
    for (const policy of NONCE_POLICIES) {
      noncePolicy.set({ deployment, policy }, policy === upstream.noncePolicy ? 1 : 0);
    }
    const { nonceAgeMs, nonceLifetimeMs } = upstream;
    if (nonceAgeMs !== undefined) nonceAge.set({ deployment }, nonceAgeMs / 1000);
    if (nonceLifetimeMs !== undefined) nonceLifetime.set({ deployment }, nonceLifetimeMs / 1000);
    for (const { credential, version, state } of upstream.credentials) {
      credentialState.set({ deployment, credential, version }, STATE_VALUES[state]);
    }
  }
}

function credentialCheck(name: string, states: readonly CredentialState[]): Check {
  const problems = states.flatMap(({ credential, state, inUse, rejected }) => {
    if (inUse && state === 'refused') {
      return [`the upstream refuses the credential ${credential}: check user name and password`];
    }
    return rejected
      ? [
          `the upstream refuses the new version of the credential ${credential}, and the old one stays: check it`,
        ]
      : [];
  });
  return { name: `deployment:${name}`, ok: problems.length === 0, detail: problems.join('; ') };
}

function isServing({ inUse, state }: CredentialState): boolean {
  return inUse && state !== 'refused';
}
