import { NONCE_POLICIES } from '../challenges/store.ts';
import type { Deployment } from '../gateway/gateway.ts';
import type { Metrics } from '../metrics/metrics.ts';

/** Brings the gauges of nonces up to date, which are read, not counted. */
export function observeNonces(metrics: Metrics, deployments: readonly Deployment[]): void {
  const { nonceAge, nonceLifetime, noncePolicy } = metrics;
  for (const { name: deployment, upstream } of deployments) {
    nonceAge.remove({ deployment });
    nonceLifetime.remove({ deployment });
    for (const policy of NONCE_POLICIES) {
      noncePolicy.set({ deployment, policy }, policy === upstream.noncePolicy ? 1 : 0);
    }
    const { nonceAgeMs, nonceLifetimeMs } = upstream;
    if (nonceAgeMs !== undefined) nonceAge.set({ deployment }, nonceAgeMs / 1000);
    if (nonceLifetimeMs !== undefined) nonceLifetime.set({ deployment }, nonceLifetimeMs / 1000);
  }
}
