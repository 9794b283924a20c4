import { GatewayError } from '../base/errors.ts';
import { getOrInsert } from '../base/maps.ts';
import type { FieldNames } from '../base/raw-headers.ts';
import { formatInstant } from '../base/units.ts';
import { Catalogue, type OperationSettings } from './catalogue.ts';
import { allowedFields, noForms } from './fields.ts';
import { PrefixMap, withoutPrefix } from './path.ts';
import { foldPath, lenientReadings, staysWithin, withoutFormat } from './spelling.ts';

/** The names that a rule allows: all, or those of a set. */
export type Names = '*' | ReadonlySet<string>;

/** Limits of a rule on one query parameter. */
export interface ParameterLimit {
  readonly name: string;
  /** Maximum number of items in its quoted list; undefined: any number. */
  readonly max: number | undefined;
  /**
   * Allowed values, for each item of a quoted list; the parameter is then required. Undefined: any value.
   */
  readonly values: ReadonlySet<string> | undefined;
}

/** One rule of a client; all its parts must hold for a request. */
export interface Rule {
  /** Name of a deployment, or ANY_DEPLOYMENT. */
  readonly deployment: string;
  readonly sites: Names;
  /** `*` includes unlisted operations. */
  readonly operations: Names;
  readonly methods: Names;
  readonly parameters: readonly ParameterLimit[];
  /** Name of the credential for its requests; undefined: that of the site or of the deployment. */
  readonly credential?: string | undefined;
  /** The first instant at which the rule allows nothing any more, in Unix milliseconds; undefined: it has no end. */
  readonly ends?: number | undefined;
}

/** A client and its rules; one of them must hold for a request. */
export interface Client {
  readonly id: string;
  readonly allow: readonly Rule[];
  /** Until this time, in Unix milliseconds, its rules refuse nothing; undefined: they always do. */
  readonly mode?: { readonly until: number } | undefined;
}

/** Matches every deployment; not a valid name of one. */
export const ANY_DEPLOYMENT = '*';

/** The rules of a client that may do everything. */
const EVERYTHING: readonly Rule[] = [
  { deployment: ANY_DEPLOYMENT, sites: '*', operations: '*', methods: '*', parameters: [] },
];

/** The client of unidentified requests if the configuration has `anonymous: true`. */
export const ANONYMOUS: Client = { id: 'anonymous', allow: EVERYTHING };

/** True if the rules of a client only say at this time, in Unix milliseconds, what they would refuse. */
export function isObserved({ mode }: Client, now: number): boolean {
  return mode !== undefined && now < mode.until;
}

/** Returns the client as one that may do everything, with the credential of each site or deployment. */
export function unrestricted({ id }: Client): Client {
  return { id, allow: EVERYTHING };
}

/** The first instant at which the rule allows nothing any more, in Unix milliseconds; infinity if it has no end. */
export function endOf({ ends = Number.POSITIVE_INFINITY }: Rule): number {
  return ends;
}

/** True if the rule allows nothing any more at a time in Unix milliseconds. */
export function hasEnded(rule: Rule, now: number): boolean {
  return endOf(rule) <= now;
}

/** True if the names include this one; a thing without a name is of all. */
export function includes(names: Names, name: string | undefined): boolean {
  return names === '*' || (name !== undefined && names.has(name));
}

/** True if the rule depends on the query. */
function readsQuery({ sites, parameters }: Rule): boolean {
  return sites !== '*' || parameters.length > 0;
}

/** True if the rule allows less than everything within its deployment. */
function isRestricted(rule: Rule): boolean {
  return rule.operations !== '*' || rule.methods !== '*' || readsQuery(rule);
}

/** Creates the error for a request that no rule allows; `what` follows the client's name in its message. */
export function forbidden({ id }: Client, what: string): GatewayError {
  return new GatewayError(
    'client-forbidden',
    `The client ${id} ${what}. The operator of this gateway can allow it: see allow in the configuration.`,
  );
}

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
 * Checks paths of a deployment with a prefix whose upstream another one has, too, because `/v1/../v2` must not bypass
 * the rules of /v2. A deployment with its own host name has every path.
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
  const top = prefix.replace(/\/$/, '');
  const isWithin = (folded: string): boolean =>
    shared.every((each) => each.folders.longest(asFolder(folded)) === own);
  const isOwn = (folded: string): boolean => {
    if (!isWithin(folded)) return false;
    const plain = withoutFormat(folded);
    // The dot of a prefix such as /v1.0 begins no format.
    return plain === folded || asFolder(folded) === own || isWithin(plain);
  };
  return (path) => lenientReadings(path, top)?.every(isOwn) === true && staysWithin(path, top);
}

interface Siblings {
  readonly folders: PrefixMap<string>;
  /** Number of deployments of the upstream, those without a prefix among them. */
  readonly deployments: number;
}

/** Cached for all deployments of a configuration. */
const FOLDERS = new WeakMap<object, ReadonlyMap<string, Siblings>>();

function foldersByOrigin(all: Readonly<Record<string, DeploymentSettings>>): ReadonlyMap<string, Siblings> {
  return getOrInsert(FOLDERS, all, () => {
    const ofOrigins = Object.values(all).flatMap((each) =>
      each.baseUrl.map((url) => [originOf(url), each] as const),
    );
    const groups = Map.groupBy(ofOrigins, ([origin]) => origin);
    return new Map(
      Array.from(groups, ([origin, group]) => [origin, siblingsIn(group.map(([, each]) => each))]),
    );
  });
}

function siblingsIn(group: readonly DeploymentSettings[]): Siblings {
  const folders = group.flatMap((each) => prefixOf(each) ?? []).map(folder);
  return { folders: new PrefixMap(folders.map((each) => [each, each])), deployments: group.length };
}

/** Returns the path prefix at the upstream. */
function prefixOf({ match, rewrite }: DeploymentSettings): string | undefined {
  return match.pathPrefix && withoutPrefix(match.pathPrefix, rewrite?.stripPrefix);
}

function folder(path: string): string {
  return asFolder(foldPath(path));
}

function asFolder(folded: string): string {
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
