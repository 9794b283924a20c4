import type { Log } from '../base/log.ts';
import type { Config } from '../config/schema.ts';
import type { Deployment } from '../gateway/gateway.ts';
import type { AppSetup } from '../setup/setup.ts';
import type { Egress } from '../transport/egress.ts';
import type { UpstreamTls } from '../transport/upstream-tls.ts';

type Settings = Config['deployments'][string];

/** Returns the TLS options of a deployment's upstream. */
export function upstreamTlsOf(setup: AppSetup, deployment: string, { tls }: Settings): UpstreamTls {
  return {
    ca: setup.authorities.get(deployment),
    minVersion: tls.minVersion,
    serverName: tls.serverName,
    pins: tls.pinSha256 ?? [],
    clientCertificate: setup.clientCertificates.get(deployment),
  };
}

/** Returns the egress options of a deployment. */
export function egressOf(setup: AppSetup, deployment: string, { digest, egress }: Settings): Egress {
  const { localAddress, proxy } = egress;
  if (proxy === undefined) return { localAddress, proxy };
  const { url: origin, credential, allowPlaintext } = proxy;
  const { algorithms } = digest;
  const ca = setup.proxyAuthorities.get(deployment);
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
