import type { Log } from '../base/log.ts';
import type { Deployment } from '../gateway/gateway.ts';
import type { DeploymentSetup } from '../setup/deployments.ts';
import type { Egress } from '../transport/egress.ts';
import type { UpstreamTls } from '../transport/upstream-tls.ts';

/** Returns the TLS options of a deployment's upstream. */
export function upstreamTlsOf({ settings: { tls }, ca, clientCertificate }: DeploymentSetup): UpstreamTls {
  return {
    ca,
    minVersion: tls.minVersion,
    serverName: tls.serverName,
    pins: tls.pinSha256 ?? [],
    clientCertificate,
  };
}

/** Returns the egress options of a deployment. */
export function egressOf({ settings: { digest, egress }, proxyCa: ca }: DeploymentSetup): Egress {
  const { localAddress, proxy } = egress;
  if (proxy === undefined) return { localAddress, proxy };
  const { url: origin, credential, allowPlaintext } = proxy;
  const { algorithms } = digest;
  return { localAddress, proxy: { origin, credential, algorithms, allowPlaintext, ca } };
}

/**
 * Logs deployments without their local address. The gateway starts anyway, because the address may be added
 * later.
 */
export async function warnOfMissingAddresses(log: Log, deployments: readonly Deployment[]): Promise<void> {
  for (const { name, upstream } of deployments) {
    if ((await upstream.hasEgressAddress()) !== false) continue;
    log.warn(
      { deployment: name },
      'egress.localAddress is not an address of this host; requests fail until it is',
    );
  }
}
