import type { FieldNames } from '../base/raw-headers.ts';
import { formatInstant } from '../base/units.ts';
import { Catalogue, type OperationSettings } from './catalogue.ts';
import {
  ANY_DEPLOYMENT,
  type Client,
  endOf,
  forbidden,
  hasEnded,
  isRestricted,
  type Rule,
  readsQuery,
} from './client.ts';
import { allowedFields, noForms } from './fields.ts';
import { PrefixMap, withoutPrefix } from './path.ts';
import { foldPath, resolvedReadings } from './spelling.ts';

/** The configuration of a deployment, as far as policy needs it. */
export interface DeploymentSettings {
  readonly baseUrl: readonly string[];
  readonly match: { readonly pathPrefix?: string | undefined; readonly host?: string | undefined };
  readonly rewrite?: { readonly stripPrefix: string } | undefined;
  readonly credential?: string | undefined;
  readonly siteParameter?: string | undefined;
  readonly sites?: Readonly<Record<string, { readonly credential: string }>> | undefined;
  readonly injectSite: boolean;
  readonly operations: Readonly<Record<string, OperationSettings>>;
  readonly unlistedOperations: 'allow' | 'deny';
  readonly restricted?: RestrictedSettings;
}

/** Additions to the fields, content types and parameter names that restricted clients may send. */
interface RestrictedSettings {
  readonly fields: readonly string[];
  readonly bodyTypes: readonly string[];
  readonly parameterNames: readonly string[];
}

/** The sites of a deployment. */
export interface Sites {
  /** Name of the query parameter that contains the site. */
  readonly parameter: string;
  /** Name of the credential of each site. */
  readonly credentials: ReadonlyMap<string, string>;
  /** True if a request without a site gets the only site that its client may use. */
  readonly inject: boolean;
}

/** The compiled policy of a deployment. */
export interface DeploymentRules {
  readonly deployment: string;
  /** Path prefix for clients, which is removed for the upstream. */
  readonly stripPrefix: string | undefined;
  /** Credential of a deployment without sites; else empty. */
  readonly credential: string;
  /** Undefined if the deployment has no sites. */
  readonly sites: Sites | undefined;
  readonly catalogue: Catalogue;
  readonly unlistedOperations: 'allow' | 'deny';
  /** True if every reading of a path stays in this deployment; undefined if no check is needed. */
  readonly isOwnPath: ((path: string) => boolean) | undefined;
  /** Fields that restricted clients may send. */
  readonly fields: FieldNames;
  /** Content types of bodies that clients may send although a rule depends on the query. */
  readonly bodyTypes: ReadonlySet<string>;
  /** Names of parameters that the configuration knows. */
  readonly parameterNames: ReadonlySet<string>;
  /** By the rules of each client that has sent a request. */
  readonly ofClients: WeakMap<readonly Rule[], ClientRules>;
}

/** Compiles the rules of one deployment; `all` are the settings of every deployment, including this one. */
export function compileRules(
  name: string,
  settings: DeploymentSettings,
  all: Readonly<Record<string, DeploymentSettings>>,
): DeploymentRules {
  const { restricted } = settings;
  return {
    deployment: name,
    stripPrefix: settings.rewrite?.stripPrefix,
    credential: settings.credential ?? '',
    sites: sitesOf(settings),
    catalogue: new Catalogue(settings.operations),
    unlistedOperations: settings.unlistedOperations,
    isOwnPath: ownPath(settings, all),
    fields: allowedFields(restricted?.fields ?? []),
    bodyTypes: noForms(restricted?.bodyTypes ?? []),
    parameterNames: new Set([
      ...(settings.siteParameter === undefined ? [] : [settings.siteParameter]),
      ...Object.values(settings.operations).flatMap(({ parameters }) => Object.keys(parameters)),
      ...(restricted?.parameterNames ?? []),
    ]),
    ofClients: new WeakMap(),
  };
}

function sitesOf({ siteParameter, sites, injectSite }: DeploymentSettings): Sites | undefined {
  if (siteParameter === undefined || sites === undefined) return undefined;
  const credentials = Object.entries(sites).map(([site, { credential }]) => [site, credential] as const);
  return { parameter: siteParameter, credentials: new Map(credentials), inject: injectSite };
}

/**
 * Checks paths of deployments that share an upstream and differ by prefix, because `/v1/../v2` must not
 * bypass the rules of /v2. A deployment with its own host name has every path.
 */
function ownPath(
  settings: DeploymentSettings,
  all: Readonly<Record<string, DeploymentSettings>>,
): ((path: string) => boolean) | undefined {
  const prefix = prefixOf(settings);
  if (prefix === undefined || settings.match.host !== undefined) return undefined;
  const folders = foldersByOrigin(all);
  const siblings = settings.baseUrl.flatMap((url) => folders.get(originOf(url)) ?? []);
  const shared = siblings.filter(({ deployments }) => deployments > 1);
  if (shared.length === 0) return undefined;
  const own = folder(prefix);
  return (path) =>
    shared.every((each) => each.folders.longest(folder(path)) === own) && staysWithin(path, prefix);
}

/** Without one of these, a path has no `..` in any reading. */
const DOTS = /\.\.|%/;

/** False if dot segments lead out of the prefix on a server that does not fold the rest of the path. */
function staysWithin(path: string, prefix: string): boolean {
  if (!DOTS.test(path)) return true;
  // A prefix may hold encodings, too.
  const starts = resolvedReadings(prefix.replace(/\/$/, ''));
  return resolvedReadings(path).every((reading, at) => `${reading}/`.startsWith(`${starts[at]}/`));
}

interface Siblings {
  readonly folders: PrefixMap<string>;
  /** Number of prefixes that deployments of the upstream have. */
  readonly deployments: number;
}

/** Cached for all deployments of a configuration. */
const FOLDERS = new WeakMap<object, ReadonlyMap<string, Siblings>>();

function foldersByOrigin(all: Readonly<Record<string, DeploymentSettings>>): ReadonlyMap<string, Siblings> {
  const known = FOLDERS.get(all);
  if (known !== undefined) return known;
  const ofOrigins = Object.values(all).flatMap((each) =>
    each.baseUrl.map((url) => [originOf(url), each] as const),
  );
  const groups = Map.groupBy(ofOrigins, ([origin]) => origin);
  const siblings = new Map(
    Array.from(groups, ([origin, group]) => [origin, siblingsIn(group.map(([, each]) => each))]),
  );
  FOLDERS.set(all, siblings);
  return siblings;
}

function siblingsIn(group: readonly DeploymentSettings[]): Siblings {
  const folders = group.flatMap((each) => prefixOf(each) ?? []).map(folder);
  return { folders: new PrefixMap(folders.map((each) => [each, each])), deployments: folders.length };
}

/** Returns the path prefix at the upstream. */
function prefixOf({ match, rewrite }: DeploymentSettings): string | undefined {
  return match.pathPrefix && withoutPrefix(match.pathPrefix, rewrite?.stripPrefix);
}

function folder(path: string): string {
  const folded = foldPath(path);
  return folded === '/' ? folded : `${folded}/`;
}

function originOf(baseUrl: string): string {
  return new URL(baseUrl).origin;
}

/** The rules of a client for a deployment, and what follows from them for each of its requests. */
export interface ClientRules {
  /** In order; at least one. */
  readonly all: readonly Rule[];
  /** True if it depends on the rule which credential a request gets. */
  readonly mixed: boolean;
  /** True if each rule lists its operations. */
  readonly listedOnly: boolean;
  /** Rules under which a request may not do everything at the upstream, or not with this credential. */
  readonly guarded: ReadonlySet<Rule>;
  /** Rules that depend on the query. */
  readonly queried: ReadonlySet<Rule>;
  /** They hold from the end of the last rule before them to that of the first of them, in Unix milliseconds. */
  readonly from: number;
  readonly until: number;
}

/**
 * Returns the rules that the client has for a deployment at a time in Unix milliseconds.
 * @throws GatewayError `client-forbidden`
 */
export function rulesFor(deployment: DeploymentRules, client: Client, now: number): ClientRules {
  const known = deployment.ofClients.get(client.allow);
  if (known !== undefined && known.from <= now && now < known.until) return known;
  const rules = compileClient(deployment, client, now);
  deployment.ofClients.set(client.allow, rules);
  return rules;
}

function compileClient(
  { deployment, unlistedOperations, isOwnPath }: DeploymentRules,
  client: Client,
  now: number,
): ClientRules {
  const own = client.allow.filter(
    (rule) => rule.deployment === deployment || rule.deployment === ANY_DEPLOYMENT,
  );
  if (own.length === 0) throw forbidden(client, `may not use the deployment ${deployment}`);
  const all = own.filter((rule) => !hasEnded(rule, now));
  const from = Math.max(...own.map(endOf).filter((end) => end <= now));
  const [first] = all;
  if (first === undefined) {
    throw forbidden(
      client,
      `may not use the deployment ${deployment} any more: what allowed it ended ${formatInstant(from)}`,
    );
  }
  const mixed = all.some(({ credential }) => credential !== first.credential);
  const isGuarded = mixed || unlistedOperations === 'deny' || isOwnPath !== undefined;
  return {
    all,
    mixed,
    listedOnly: all.every(({ operations }) => operations !== '*'),
    guarded: new Set(all.filter((rule) => isGuarded || isRestricted(rule))),
    queried: new Set(all.filter(readsQuery)),
    from,
    until: Math.min(...all.map(endOf)),
  };
}
