import { isDeepStrictEqual } from 'node:util';
import type { Log } from '../base/log.ts';
import { type Steps, slices } from '../base/steps.ts';
import { formatPath } from '../config/issues.ts';
import { listenerPath } from '../config/listen.ts';
import type { DoctorInput, ListenerCertificate } from '../doctor/doctor.ts';
import { probeOf } from '../doctor/probe.ts';
import type { GatewayOptions } from '../gateway/gateway.ts';
import { ResponseFilter } from '../gateway/headers.ts';
import type { Deployment } from '../gateway/relay.ts';
import { hostsOf, Routes } from '../gateway/routing.ts';
import type { Identification } from '../identity/identification.ts';
import type { OpenIdProvider } from '../identity/openid-provider.ts';
import type { Metrics } from '../metrics/metrics.ts';
import { compileRules } from '../policy/rules.ts';
import { type DeploymentSetup, deploymentIn, deploymentsOf } from '../setup/deployments.ts';
import type { AppSetup } from '../setup/setup.ts';
import { Upstream, type UpstreamDeps, type UpstreamOptions } from '../upstream/upstream.ts';
import {
  type AddressDeps,
  type AddressesOptions,
  eachAddress,
  UpstreamAddress,
} from '../upstream/upstream-address.ts';

/** The parts that send the requests of one deployment. */
interface WayToUpstream {
  readonly upstream: Upstream;
  /** Those of the upstream and of its addresses. */
  readonly options: ServedOptions;
}

/** A deployment as this process serves it. */
export interface ServedDeployment extends Omit<Deployment, 'upstream'>, WayToUpstream {}

type ServedOptions = UpstreamOptions & AddressesOptions;

/** The dependencies that the upstreams of all deployments share. */
export interface SharedUpstreamDeps extends Omit<UpstreamDeps & AddressDeps, 'metrics'> {
  readonly metrics: Metrics;
}

/**
 * Builds the deployments of a setup. A running deployment with unchanged options keeps its upstream, which
 * gets credentials that are new to it; no request uses them before the setup is active, when
 * `offerCredentials` completes the work. `built` receives each deployment, so that the caller can close
 * them after an error.
 */
export function* buildDeployments(
  setup: AppSetup,
  deps: SharedUpstreamDeps,
  running: readonly ServedDeployment[],
  built: ServedDeployment[] = [],
): Steps<ServedDeployment[]> {
  const known = new Map(running.map((each) => [each.name, each]));
  for (const deployment of deploymentsOf(setup)) {
    const { name, settings, credentials } = deployment;
    const rules = compileRules(name, settings, setup.config.deployments);
    const metrics = deps.metrics.deployment(name);
    const way = wayTo(deployment, { ...deps, metrics }, known.get(name));
    for (const set of credentials) way.upstream.use(set);
    const { pathPrefix, host } = settings.match;
    const responseFilter = new ResponseFilter(settings.passOriginFields);
    built.push({
      name,
      host: pathPrefix === undefined ? host : undefined,
      rules,
      responseFilter,
      metrics,
      pace: { idleMs: settings.timeouts.idle, minRate: settings.body.minRate },
      ...way,
    });
    yield;
  }
  return built;
}

/** Returns the parts that send the requests of a deployment: those of the running one, if it has the same options. */
function wayTo(
  deployment: DeploymentSetup,
  deps: UpstreamDeps & AddressDeps,
  running: ServedDeployment | undefined,
): WayToUpstream {
  const { credentials, proxyCredential } = deployment;
  const options = upstreamOptions(deployment);
  if (running !== undefined) {
    const { upstream, options: before } = running;
    // A change of operations or paths may move the neutral target, which the upstream gets after the commit: connections
    // stay.
    const { neutralTarget } = options;
    if (isDeepStrictEqual({ ...before, neutralTarget }, options)) return { upstream, options };
  }
  const addresses = eachAddress(options).map((each) => new UpstreamAddress(each, deps, credentials));
  if (proxyCredential !== undefined) for (const address of addresses) address.offer(proxyCredential);
  return { upstream: new Upstream(options, deps, addresses, running?.upstream), options };
}

/**
 * Lets upstreams that replace others go on with the versions in use there, which may have been promoted or rolled back.
 * Synchronous, at the commit: another promotion until then would be lost.
 */
export function takeOverVersions(
  deployments: readonly ServedDeployment[],
  before: readonly ServedDeployment[],
): void {
  const known = new Map(before.map(({ name, upstream }) => [name, upstream]));
  for (const { name, upstream } of withOther(deployments, before)) {
    const former = known.get(name);
    if (former === undefined) continue;
    for (const address of upstream.addresses) address.takeOver([former.preferred, ...former.addresses]);
  }
}

/** Gives an upstream exactly the credentials of the active setup, and the neutral target that tests them. */
export function offerCredentials(setup: AppSetup, deployment: ServedDeployment): void {
  const { name, upstream, options } = deployment;
  dropUnknownCredentials(setup, deployment);
  const { credentials = [], proxyCredential } = deploymentIn(setup, name) ?? {};
  for (const address of upstream.addresses) {
    address.neutralTarget = options.neutralTarget;
    for (const set of credentials) address.offer(set);
    if (proxyCredential !== undefined) address.offer(proxyCredential);
  }
}

/** Removes credentials that the active setup does not have. */
export function dropUnknownCredentials(setup: AppSetup, { name, upstream }: ServedDeployment): void {
  const { credentials = [] } = deploymentIn(setup, name) ?? {};
  const names = new Set(credentials.map((set) => set.name));
  upstream.keepOnly(names);
}

/** Returns the options of the gateway for a setup and its deployments. */
export function gatewayOptions(
  { config }: AppSetup,
  deployments: readonly Deployment[],
  identification: Identification,
): GatewayOptions {
  const routes = deployments.flatMap((deployment) => {
    const settings = config.deployments[deployment.name];
    return settings ? [{ deployment, match: { ...settings.match, baseUrl: settings.baseUrl } }] : [];
  });
  return {
    identification,
    routes: new Routes(routes),
    hosts: hostsOf(config),
    logRequests: config.log.requests,
    accessLog: config.log.access,
  };
}

/** Returns the target of a request that tests a credential of a deployment, without side effects. */
export function testTarget({ settings, testSites }: DeploymentSetup, credential: string): string {
  return probeOf(settings, testSites.get(credential)?.[0]).target;
}

/** Returns the options of a deployment's upstream. */
function upstreamOptions(deployment: DeploymentSetup): ServedOptions {
  const { name, settings } = deployment;
  const { digest, timeouts, tls } = settings;
  return {
    deployment: name,
    origins: settings.baseUrl,
    ...digest,
    neutralTarget: settings.health.path ?? probeOf(settings, undefined).target,
    connections: settings.connections,
    timeouts,
    retry: settings.retry,
    circuit: settings.circuit,
    health: settings.health,
    totalTimeout: timeouts.total,
    body: settings.body,
    outcomes: settings.outcomes,
    tls: {
      ca: deployment.ca,
      minVersion: tls.minVersion,
      serverName: tls.serverName,
      pins: tls.pinSha256 ?? [],
      clientCertificate: deployment.clientCertificate,
    },
    egress: egressOf(deployment),
    forwardTrace: settings.forwardTrace,
  };
}

/** Returns the deployments whose upstream `others` do not use. */
export function withOther(
  deployments: readonly ServedDeployment[],
  others: readonly ServedDeployment[],
): ServedDeployment[] {
  const used = new Set(others.map(({ upstream }) => upstream));
  return deployments.filter(({ upstream }) => !used.has(upstream));
}

/** Loads the nonces that other processes share. */
export async function restoreAll(deployments: readonly ServedDeployment[]): Promise<void> {
  const pause = slices();
  const restored: Promise<void>[] = [];
  for (const { upstream } of deployments) {
    restored.push(...upstream.addresses.map((address) => address.restore()));
    await pause();
  }
  await Promise.all(restored);
}

/** Works in slices, because closing many connections would block the event loop. */
export async function closeAll(deployments: readonly ServedDeployment[]): Promise<void> {
  const pause = slices();
  const closed: Promise<void>[] = [];
  for (const { upstream } of deployments) {
    closed.push(upstream.close());
    await pause();
  }
  await Promise.all(closed);
}

/** Returns the egress options of a deployment. */
function egressOf({ settings: { digest, egress }, proxyCa: ca }: DeploymentSetup): ServedOptions['egress'] {
  const { localAddress: localAddresses = [], failback, proxy } = egress;
  if (proxy === undefined) return { localAddresses, failback, proxy };
  const { url: origin, credential, allowPlaintext } = proxy;
  const { algorithms } = digest;
  return {
    localAddresses,
    failback,
    proxy: { origin, credential, algorithms, allowPlaintext, ca },
  };
}

/**
 * Logs deployments without any of their local addresses. The gateway starts anyway, because the address may be added
 * later.
 */
export async function warnOfMissingAddresses(log: Log, deployments: readonly Deployment[]): Promise<void> {
  for (const { name, upstream } of deployments) {
    const states = await upstream.egress.states();
    if (states.length === 0 || states.some(({ status }) => status !== 'missing')) continue;
    log.warn(
      { deployment: name },
      'egress.localAddress is not an address of this host; requests fail until it is',
    );
  }
}

/**
 * Selects the parts of a setup that doctor examines. `only`: an existing deployment, or undefined for all.
 */
export function doctorInput(setup: AppSetup, only?: string): DoctorInput {
  const deployments = [...deploymentsOf(setup)]
    .filter(({ name }) => only === undefined || name === only)
    .flatMap((deployment) => {
      const { name, settings, credentials, testSites, proxyCredential } = deployment;
      return eachAddress(upstreamOptions(deployment)).map((connection) => ({
        name,
        settings,
        connection,
        credentials,
        testSites,
        proxyCredential,
      }));
    });
  return {
    deployments,
    redis: setup.redis,
    audit: setup.audit,
    certificates: certificatesOf(setup),
    crlExpires: firstCrlExpiry(setup),
    provider: openIdProvider(setup),
  };
}

function certificatesOf({ config, listenTls }: AppSetup): ListenerCertificate[] {
  return listenTls.flatMap((tls, index) => {
    if (tls === undefined) return [];
    const { validFrom, expires } = tls;
    return { subject: formatPath(listenerPath(config.listen, index)), validFrom, expires };
  });
}

/** When the first list of revoked certificates of any listener expires, in seconds of Unix time; 0: never. */
function firstCrlExpiry({ listenTls }: AppSetup): number {
  const ends = listenTls.map((tls) => tls?.crlExpires ?? 0).filter((end) => end > 0);
  return ends.length === 0 ? 0 : Math.min(...ends);
}

/** The provider at which operators sign in; undefined: there is none. */
export function openIdProvider({
  config,
  oidc: content,
}: Pick<AppSetup, 'config' | 'oidc'>): OpenIdProvider | undefined {
  const { oidc } = config.control;
  return oidc && content && { issuer: oidc.issuer, clientId: oidc.clientId, ...content };
}
