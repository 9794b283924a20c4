import { getOrInsert } from '../base/maps.ts';
import { slices } from '../base/steps.ts';
import { credentialsOf } from '../config/deployment.ts';
import type { Config } from '../config/schema.ts';
import type { CredentialSet } from '../credentials/credentials.ts';
import { includes, type Rule } from '../policy/rules.ts';
import type { ClientCertificate } from '../transport/upstream-tls.ts';
import type { ContentReading } from './content.ts';

/** The content of the files that the section of a deployment names. */
export interface DeploymentFiles {
  /** PEM of the authorities of its upstream; undefined: those of Node.js. */
  readonly ca: string | undefined;
  readonly clientCertificate: ClientCertificate | undefined;
  /** PEM of the authorities of its proxy. */
  readonly proxyCa: string | undefined;
}

/** Reads the files of all deployments, by name of the deployment. */
export async function readDeploymentFiles(
  deployments: Config['deployments'],
  reading: ContentReading,
): Promise<ReadonlyMap<string, DeploymentFiles>> {
  const files = new Map<string, DeploymentFiles>();
  const pause = slices();
  for (const [name, { tls, egress }] of Object.entries(deployments)) {
    await pause();
    const path = ['deployments', name];
    const { ca, client } = await reading.tls(tls, [...path, 'tls']);
    const proxyCa = await reading.authority(egress.proxy?.caFile, [...path, 'egress', 'proxy']);
    files.set(name, { ca, clientCertificate: client, proxyCa });
  }
  return files;
}

/** A deployment with everything that its section names. */
export interface DeploymentSetup extends DeploymentFiles {
  readonly name: string;
  readonly settings: Config['deployments'][string];
  /** Those that its requests use. */
  readonly credentials: readonly CredentialSet[];
  /** Of each credential, the sites with which it is tested; none: the deployment has no sites. */
  readonly testSites: TestSites;
  /** Undefined: its proxy asks for none, or there is no proxy. */
  readonly proxyCredential: CredentialSet | undefined;
}

/** Sites by name of a credential. */
type TestSites = ReadonlyMap<string, readonly string[]>;

/** The files that the deployments of a configuration need, read. */
interface DeploymentParts {
  readonly config: Pick<Config, 'deployments' | 'clients'>;
  readonly credentials: ReadonlyMap<string, CredentialSet>;
  /** By name of the deployment. */
  readonly files: ReadonlyMap<string, DeploymentFiles>;
}

const NO_FILES: DeploymentFiles = { ca: undefined, clientCertificate: undefined, proxyCa: undefined };

/** Yields the deployments of a setup, in the order of the configuration. */
export function* deploymentsOf(setup: DeploymentParts): Generator<DeploymentSetup> {
  for (const [name, settings] of Object.entries(setup.config.deployments)) {
    yield joined(setup, name, settings);
  }
}

/** Returns a deployment of a setup; undefined: it has none of this name. */
export function deploymentIn(setup: DeploymentParts, name: string): DeploymentSetup | undefined {
  const settings = setup.config.deployments[name];
  return settings && joined(setup, name, settings);
}

function joined(
  { config, credentials, files }: DeploymentParts,
  name: string,
  settings: Config['deployments'][string],
): DeploymentSetup {
  const testSites = testSitesOf(settings, rulesByDeployment(config.clients).get(name) ?? []);
  const sets = Array.from(testSites.keys(), (credential) => {
    const set = credentials.get(credential);
    if (set === undefined) throw new TypeError(`no credential ${credential} was read for deployment ${name}`);
    return set;
  });
  const proxyCredential = credentials.get(settings.egress.proxy?.credential ?? '');
  return { name, settings, ...(files.get(name) ?? NO_FILES), credentials: sets, testSites, proxyCredential };
}

/** Returns the credentials that a deployment or a rule for it names, each with the sites that are sent with it. */
function testSitesOf(settings: Config['deployments'][string], rules: readonly Rule[]): TestSites {
  const sites = Object.entries(settings.sites ?? {});
  const found = new Map<string, string[]>(credentialsOf(settings).map((credential) => [credential, []]));
  for (const [site, { credential }] of sites) found.get(credential)?.push(site);
  for (const { credential, sites: allowed } of rules) {
    if (credential === undefined || found.has(credential)) continue;
    // One site is enough: a rule for all of them would be tested with hundreds.
    const site = sites.find(([name]) => includes(allowed, name))?.[0];
    found.set(credential, site === undefined ? [] : [site]);
  }
  return found;
}

/** Cached for the clients of a configuration: there may be thousands, and each deployment asks. */
const RULES = new WeakMap<Config['clients'], ReadonlyMap<string, readonly Rule[]>>();

function rulesByDeployment(clients: Config['clients']): ReadonlyMap<string, readonly Rule[]> {
  return getOrInsert(RULES, clients, () => {
    const rules = clients.flatMap(({ allow }) => allow.filter(({ credential }) => credential !== undefined));
    return Map.groupBy(rules, ({ deployment }) => deployment);
  });
}
