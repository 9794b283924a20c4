import { Catalogue, type OperationSettings } from './catalogue.ts';
import { withoutPrefix } from './rewrite.ts';
import { foldPath } from './spelling.ts';

/** What a deployment's configuration says about who may ask for what. */
export interface DeploymentSettings {
  readonly baseUrl: string;
  readonly match: { readonly pathPrefix?: string | undefined; readonly host?: string | undefined };
  readonly rewrite?: { readonly stripPrefix: string } | undefined;
  readonly credential?: string | undefined;
  readonly siteParameter?: string | undefined;
  readonly sites?: Readonly<Record<string, { readonly credential: string }>> | undefined;
  readonly injectSite: boolean;
  readonly operations: Readonly<Record<string, OperationSettings>>;
  readonly unlistedOperations: 'allow' | 'deny';
}

/** The sites of a deployment. */
export interface Sites {
  /** The query parameter that names the site. */
  readonly parameter: string;
  /** The credential of each site. */
  readonly credentials: ReadonlyMap<string, string>;
  /** Whether a request without site goes to the only one that its client may use. */
  readonly inject: boolean;
}

/** A deployment's part of the policy, worked out once. */
export interface DeploymentRules {
  readonly deployment: string;
  /** What paths begin with for clients, and not for the upstream. */
  readonly stripPrefix: string | undefined;
  /** Of a deployment without sites. */
  readonly credential: string;
  /** undefined: the query does not matter. */
  readonly sites: Sites | undefined;
  readonly catalogue: Catalogue;
  readonly unlistedOperations: 'allow' | 'deny';
  /** Whether a path stays in this deployment however it is read; undefined: its upstream is this one's alone. */
  readonly isOwnPath: ((path: string) => boolean) | undefined;
}

/** The rules of one deployment; `all` are those of the configuration, this one among them. */
export function compileRules(
  name: string,
  settings: DeploymentSettings,
  all: Readonly<Record<string, DeploymentSettings>>,
): DeploymentRules {
  const others = Object.entries(all)
    .filter(([other, { baseUrl }]) => other !== name && sameOrigin(baseUrl, settings.baseUrl))
    .flatMap(([, other]) => prefixOf(other) ?? []);
  return {
    deployment: name,
    stripPrefix: settings.rewrite?.stripPrefix,
    credential: settings.credential ?? '',
    sites: sitesOf(settings),
    catalogue: new Catalogue(settings.operations),
    unlistedOperations: settings.unlistedOperations,
    isOwnPath: ownPath(prefixOf(settings), settings.match.host, others),
  };
}

function sitesOf({ siteParameter, sites, injectSite }: DeploymentSettings): Sites | undefined {
  if (siteParameter === undefined || sites === undefined) return undefined;
  const credentials = Object.entries(sites).map(([site, { credential }]) => [site, credential] as const);
  return { parameter: siteParameter, credentials: new Map(credentials), inject: injectSite };
}

/**
 * Deployments of one upstream are told apart by their prefixes: `/v1/../v2` must not come round the
 * rules of /v2. One that a host name leads to has every path.
 */
function ownPath(
  pathPrefix: string | undefined,
  host: string | undefined,
  others: readonly string[],
): ((path: string) => boolean) | undefined {
  if (pathPrefix === undefined || host !== undefined || others.length === 0) return undefined;
  const own = folder(pathPrefix);
  const narrower = others.map(folder).filter((other) => other.length > own.length);
  return (path) => {
    const read = folder(path);
    return read.startsWith(own) && !narrower.some((other) => read.startsWith(other));
  };
}

/** Where its paths begin at the upstream. */
function prefixOf({ match, rewrite }: DeploymentSettings): string | undefined {
  return match.pathPrefix && withoutPrefix(match.pathPrefix, rewrite?.stripPrefix);
}

function folder(path: string): string {
  const folded = foldPath(path);
  return folded === '/' ? folded : `${folded}/`;
}

function sameOrigin(a: string, b: string): boolean {
  return new URL(a).origin === new URL(b).origin;
}
