import { createSocket } from 'node:dgram';
import { lookup } from 'node:dns';
import { once } from 'node:events';
import { isIP } from 'node:net';
import { connect as openTls } from 'node:tls';
import { promisify } from 'node:util';
import { Cancellation } from '../base/cancellation.ts';
import { inTime } from '../base/clock.ts';
import { GatewayError } from '../base/errors.ts';
import { expectGatewayError, ignoreSystemError, reportDefect } from '../base/expected-errors.ts';
import { isExposed } from '../base/network.ts';
import { formatPath } from '../config/issues.ts';
import type { Config } from '../config/schema.ts';
import type { Credential, CredentialSet } from '../credentials/credentials.ts';
import { unsigned } from '../handshake/account.ts';
import { AttemptBudget } from '../handshake/attempt-budget.ts';
import { METHOD_REFUSED } from '../handshake/credential-health.ts';
import { NO_BODY } from '../handshake/exchange.ts';
import type { UpstreamResponse } from '../handshake/response.ts';
import type { ConnectionOptions } from '../transport/connections.ts';
import { type Egress, isOnThisHost, leavingFrom } from '../transport/egress.ts';
import { endpointOf } from '../transport/reach.ts';
import { secureContextFor, topAuthority } from '../transport/upstream-tls.ts';
import { CredentialExamination, type ExaminedCredential } from './credential.ts';
import { type Finding, fine, wrong } from './finding.ts';
import { challengesOf, type DoctorDeps, ObservedConnections } from './observed-connections.ts';
import { type Probe, probeOf } from './probe.ts';
import { challengeFinding, clockFinding, connectionFinding, tlsFinding } from './upstream-findings.ts';

/** Time limit for one deployment, in milliseconds. */
const DEADLINE_MS = 8_000;
/** Time limit for the lookup of a name, in milliseconds: nothing ends this call of the system. */
const LOOKUP_MS = 1_000;
/** Time limit for another look at a certificate, in milliseconds. */
const LOOK_MS = 1_000;

export interface ExaminedDeployment {
  readonly name: string;
  readonly settings: Config['deployments'][string];
  readonly connection: ConnectionOptions;
  /** The credentials that its requests use. */
  readonly credentials: readonly CredentialSet[];
  /** The sites that are sent with each credential. */
  readonly testSites: ReadonlyMap<string, readonly string[]>;
  /** The credential of its proxy. */
  readonly proxyCredential: CredentialSet | undefined;
}

export interface DeploymentReport {
  readonly name: string;
  readonly origin: string;
  /** Method and target of the first request. */
  readonly probe: string;
  readonly findings: readonly Finding[];
}

/** Requests a challenge and authenticates with each credential of the deployment. Ends within 8 s. */
export async function examineDeployment(
  deployment: ExaminedDeployment,
  deps: DoctorDeps,
): Promise<DeploymentReport> {
  const { name, settings, connection } = deployment;
  const [firstSite] = Object.keys(settings.sites ?? {});
  const probe = probeOf(settings, firstSite);
  const connections = new ObservedConnections(connection, deployment.proxyCredential, deps);
  const cancellation = new Cancellation();
  const late = `The upstream took longer than ${DEADLINE_MS} ms in all.`;
  const timer = setTimeout(
    () => cancellation.cancel(new GatewayError('upstream-timeout', late)),
    DEADLINE_MS,
  );
  const stop = (): void =>
    cancellation.cancel(new GatewayError('client-closed', 'The examination was stopped.'));
  if (deps.signal?.aborted === true) stop();
  deps.signal?.addEventListener('abort', stop);
  try {
    const examination = new Examination(deployment, { ...deps, connections, cancellation });
    const findings = (await examination.run(probe)).map((finding) => withPaths(finding, name));
    return { name, origin: connection.origin, probe: `${probe.method} ${probe.target}`, findings };
  } finally {
    clearTimeout(timer);
    deps.signal?.removeEventListener('abort', stop);
    connections.close();
  }
}

/** Writes the keys that an advice names with their paths in the configuration. */
function withPaths({ advice, ...finding }: Finding, deployment: string): Finding {
  if (advice === undefined) return finding;
  const path = (_braces: string, key: string): string =>
    formatPath(['deployments', deployment, ...key.split('.')]);
  return { ...finding, advice: advice.replaceAll(/\{([\w.]+)\}/g, path) };
}

/** The response to a request without authentication. */
interface Asked {
  readonly response: UpstreamResponse;
  readonly method: string;
  /** Why the method is not HEAD; undefined if it is the one of the probe. */
  readonly noHead: string | undefined;
}

interface ExaminationDeps extends DoctorDeps {
  readonly connections: ObservedConnections;
  readonly cancellation: Cancellation;
}

class Examination {
  readonly #deployment: ExaminedDeployment;
  readonly #deps: ExaminationDeps;

  constructor(deployment: ExaminedDeployment, deps: ExaminationDeps) {
    this.#deployment = deployment;
    this.#deps = deps;
  }

  async run(probe: Probe): Promise<Finding[]> {
    const { egress, origin } = this.#deployment.connection;
    const { localAddress, proxy } = egress;
    if (localAddress !== undefined && (await isOnThisHost(localAddress)) === false) {
      const chosen = await sourceAddressTo(endpointOf(proxy?.origin ?? origin).host);
      const instead = chosen === undefined ? '' : `; the system would choose ${chosen}`;
      const saw = `${localAddress} is not an address of this host${instead}`;
      return [wrong('egress', 'address-not-here', saw)];
    }
    try {
      return await this.#examine(probe);
    } catch (error) {
      return [egressFinding(egress, undefined), await this.#whyNoResponse(error)];
    }
  }

  async #examine(probe: Probe): Promise<Finding[]> {
    const { settings, connection } = this.#deployment;
    const { algorithms, noncePolicy } = settings.digest;
    const { connections, wallTime, cancellation } = this.#deps;
    const { response, method, noHead } = await this.#ask(probe);
    // Through a proxy the upstream sees the proxy's address, not this one.
    const address = connections.localAddress;
    const challenge = withMethod(challengeFinding(response, algorithms), method, noHead);
    const seen = [
      egressFinding(connection.egress, address),
      tlsFinding(connections.tlsSeen, wallTime()),
      challenge,
      ...clockFinding(connections.clockDifferenceMs),
    ];
    if (challenge.mark !== 'ok') return seen;
    const deps = { connections, algorithms, noncePolicy, address, cancellation };
    const ofCredentials = await Promise.all(
      credentialsIn(this.#deployment, method).map((each) => new CredentialExamination(each, deps).run()),
    );
    return [...seen, ...ofCredentials.flat()];
  }

  /** Asks with GET if the upstream does not support HEAD, or leaves the challenge out of its response to it. */
  async #ask(probe: Probe): Promise<Asked> {
    const { connections, cancellation } = this.#deps;
    const send = (method: string): Promise<UpstreamResponse> => {
      const own = { client: '', cancellation, budget: new AttemptBudget(method) };
      return connections.send(unsigned({ ...probe, ...own, method, headers: [], body: NO_BODY }));
    };
    const { method } = probe;
    if (method !== 'HEAD') return { response: await send(method), method, noHead: undefined };
    let noHead = 'HEAD closes the connection';
    try {
      const response = await send(method);
      const { status } = response;
      const isUnasked = status === 401 && challengesOf(response).length === 0;
      if (!METHOD_REFUSED.has(status) && !isUnasked) return { response, method, noHead: undefined };
      noHead = `HEAD gets HTTP ${status}${isUnasked ? ' without a challenge' : ''}`;
    } catch (error) {
      if (connectionFinding(error).problem !== 'connection-broken') throw error;
    }
    return { response: await send('GET'), method: 'GET', noHead };
  }

  async #whyNoResponse(error: unknown): Promise<Finding> {
    const problem = connectionFinding(error);
    if (OF_AUTHORITY.has(problem.problem)) {
      const authority = await authorityAbove(this.#deployment.connection);
      return authority === undefined ? problem : { ...problem, saw: `${problem.saw}: ${authority}` };
    }
    if (problem.problem !== 'tls-not-tls') return problem;
    return (await this.#speaksPlainHttp())
      ? wrong('tls', 'not-https', 'plain HTTP answers on that port')
      : problem;
  }

  /** Sends a plain HTTP request without path, site or credential, which reveals nothing. */
  async #speaksPlainHttp(): Promise<boolean> {
    const { connection, proxyCredential } = this.#deployment;
    const origin = connection.origin.replace(/^https:/, 'http:');
    const plain = new ObservedConnections({ ...connection, origin }, proxyCredential, this.#deps);
    try {
      const request = { client: '', cancellation: this.#deps.cancellation };
      await plain.send({ request, method: 'HEAD', target: '/', headers: [], body: null });
      return true;
    } catch (error) {
      expectGatewayError(error);
      return false;
    } finally {
      await plain.close();
    }
  }
}

/** Problems with an authority, which an error does not name. */
const OF_AUTHORITY: ReadonlySet<string | undefined> = new Set([
  'tls-unknown-authority',
  'tls-chain-incomplete',
  'tls-root-missing',
]);

/** The authority that the chain of an upstream ends with; undefined: it cannot be seen. Nothing is sent. */
async function authorityAbove({ origin, egress, tls }: ConnectionOptions): Promise<string | undefined> {
  if (egress.proxy !== undefined) return undefined;
  const { host, port } = endpointOf(origin);
  const socket = openTls({
    host,
    port,
    ...leavingFrom(egress.localAddress),
    servername: tls.serverName ?? (isIP(host) === 0 ? host : ''),
    secureContext: secureContextFor(tls),
    rejectUnauthorized: false,
  });
  try {
    await once(socket, 'secureConnect', { signal: AbortSignal.timeout(LOOK_MS) });
    return topAuthority(socket.getPeerCertificate(true));
  } catch (error) {
    return reportDefect(error);
  } finally {
    socket.destroy();
  }
}

function credentialsIn(
  { settings, credentials, testSites }: ExaminedDeployment,
  method: string,
): ExaminedCredential[] {
  const versions = credentials.flatMap(({ name, current, next }) => {
    const sites = testSites.get(name) ?? [];
    const version = (label: string, credential: Credential) => ({ label, credential, sites });
    return [version(name, current), ...(next === undefined ? [] : [version(`${name} (next)`, next)])];
  });
  const isShared = (site: string): boolean => versions.filter(({ sites }) => sites.includes(site)).length > 1;
  const probeAt = (site: string | undefined) => ({ ...probeOf(settings, site), method });
  return versions.map(({ label, credential, sites }) => {
    const ofSites = sites.map((site) => {
      const subject = isShared(site) ? `${site} with ${label}` : site;
      return { site, subject, probe: probeAt(site) };
    });
    const without = { site: undefined, subject: label, probe: probeAt(undefined) };
    return { label, credential, probes: sites.length === 0 ? [without] : ofSites };
  });
}

function withMethod(finding: Finding, method: string, noHead: string | undefined): Finding {
  if (noHead === undefined) return finding;
  const saw = `${finding.saw}; asked with ${method}, since ${noHead}`;
  return { ...finding, saw, facts: { ...finding.facts, method } };
}

function egressFinding({ localAddress, proxy }: Egress, address: string | undefined): Finding {
  const chosen =
    address === undefined ? 'the address that the system chooses' : `${address}, chosen by the system`;
  const from = `from ${localAddress ?? chosen}`;
  const through = proxy === undefined ? '' : `, through the proxy ${proxy.origin}`;
  const saw = `${from}${through}`;
  const facts = { address: localAddress ?? address ?? null, proxy: proxy?.origin ?? null };
  const showsCredential = proxy?.credential !== undefined && isExposed(new URL(proxy.origin));
  return showsCredential
    ? wrong('egress', 'proxy-plaintext', `${saw}, no TLS`, facts)
    : fine('egress', saw, facts);
}

/**
 * Returns the local address that the routing table selects for a host; undefined if there is no route, or its name is
 * not found in time. Sends no packet: connecting a UDP socket only assigns its address.
 */
async function sourceAddressTo(host: string): Promise<string | undefined> {
  let source: string | undefined;
  const look = async (): Promise<void> => {
    // With options, it is shared with those of connections.
    const { address, family } = await promisify(lookup)(host, {});
    source = await boundTo(address, family === 6 ? 'udp6' : 'udp4');
  };
  await inTime(look().catch(ignoreSystemError), LOOKUP_MS);
  return source;
}

async function boundTo(address: string, type: 'udp4' | 'udp6'): Promise<string> {
  const socket = createSocket(type);
  try {
    // Any port works, because nothing is sent to it.
    socket.connect(443, address);
    await once(socket, 'connect');
    return socket.address().address;
  } finally {
    socket.close();
  }
}
