import { isIPv6 } from 'node:net';
import { isDeepStrictEqual } from 'node:util';
import type { Steps } from '../base/steps.ts';
import type { RedisOptions } from '../challenges/redis-connection.ts';
import { credentialsOf } from '../config/deployment.ts';
import type { ListenTls } from '../config/listen-tls.ts';
import type { Config } from '../config/schema.ts';
import type { CredentialSet } from '../credentials/credentials.ts';
import { canonicalHost } from '../gateway/browsers.ts';
import type { Deployment, GatewayOptions } from '../gateway/gateway.ts';
import { Routes } from '../gateway/routes.ts';
import type { Identification } from '../identity/identification.ts';
import { compileRules } from '../policy/rules.ts';
import { Upstream, type UpstreamExternals, type UpstreamOptions } from '../upstream/upstream.ts';
import type { ClientCertificate } from '../upstream/upstream-tls.ts';
import { egressOf, upstreamTlsOf } from './egress.ts';

/** A configuration with everything that it names, read and found right. */
export interface AppSetup {
  readonly config: Config;
  readonly credentials: ReadonlyMap<string, CredentialSet>;
  /** PEM by name of the deployment. */
  readonly authorities: ReadonlyMap<string, string>;
  /** By name of the deployment. */
  readonly clientCertificates: ReadonlyMap<string, ClientCertificate>;
  /** PEM of the authorities of proxies, by name of the deployment. */
  readonly proxyAuthorities: ReadonlyMap<string, string>;
  /** undefined: without Redis. */
  readonly redis: RedisOptions | undefined;
  /** undefined: the data plane is plain HTTP. */
  readonly listenTls: ListenTls | undefined;
}

/**
 * The deployments of a setup. Those that run already and stay as they are keep their upstream; the caller gives them
 * the credentials of the setup when it is in force. `built` has those that were made so far, also after an error.
 */
export function* buildDeployments(
  setup: AppSetup,
  externals: UpstreamExternals,
  running: readonly Deployment[],
  built: Deployment[] = [],
): Steps<Deployment[]> {
  const { deployments } = setup.config;
  const before = new Map(running.map((each) => [each.name, each.upstream]));
  for (const [name, deployment] of Object.entries(deployments)) {
    const options = upstreamOptions(setup, name, deployment);
    const sets = credentialSets(setup, name);
    const known = before.get(name);
    const kept = isDeepStrictEqual(known?.options, options) ? known : undefined;
    const rules = compileRules(name, deployment, deployments);
    const upstream = kept ?? new Upstream(options, externals, sets);
    const proxy = setup.credentials.get(deployment.egress.proxy?.credential ?? '');
    if (proxy !== undefined) upstream.connections.offer(proxy);
    const { pathPrefix, host } = deployment.match;
    const { host: address } = new URL(deployment.baseUrl);
    built.push({ name, host: pathPrefix === undefined ? host : undefined, rules, upstream, address });
    yield;
  }
  return built;
}

/** Gives an upstream that stays the credentials of a new setup. */
export function offerCredentials(setup: AppSetup, { name, upstream }: Deployment): void {
  const sets = credentialSets(setup, name);
  upstream.keepOnly(new Set(sets.map((set) => set.name)));
  for (const set of sets) upstream.offer(set);
}

export function gatewayOptions(
  { config }: AppSetup,
  deployments: readonly Deployment[],
  identification: Identification,
): GatewayOptions {
  const routes = deployments.flatMap((deployment) => {
    const settings = config.deployments[deployment.name];
    return settings ? [{ deployment, match: { ...settings.match, baseUrl: settings.baseUrl } }] : [];
  });
  const { hosts } = config.listen;
  const known = hosts && [
    ...hosts,
    ...Object.values(config.deployments).flatMap(({ match }) => match.host ?? []),
  ];
  return {
    identification,
    routes: new Routes(routes),
    hosts: known && new Set(known.map((host) => canonicalHost(isIPv6(host) ? `[${host}]` : host))),
    logRequests: config.log.requests,
  };
}

/** The credentials that a deployment's requests use. */
export function credentialSets({ config, credentials }: AppSetup, name: string): CredentialSet[] {
  return credentialsOf(config.deployments[name] ?? {}).map((credential) => {
    const set = credentials.get(credential);
    if (set === undefined) throw new TypeError(`no credential ${credential} was read for deployment ${name}`);
    return set;
  });
}

/** What a deployment's upstream is made from. */
export function upstreamOptions(
  setup: AppSetup,
  name: string,
  deployment: Config['deployments'][string],
): UpstreamOptions {
  const { digest, timeouts } = deployment;
  return {
    deployment: name,
    origin: deployment.baseUrl,
    ...digest,
    connections: deployment.connections,
    timeouts,
    totalTimeout: timeouts.total,
    body: deployment.body,
    tls: upstreamTlsOf(setup, name, deployment),
    egress: egressOf(setup, name, deployment),
    forwardTrace: deployment.forwardTrace,
  };
}
