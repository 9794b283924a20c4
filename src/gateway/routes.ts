import { GatewayError } from '../base/errors.ts';
import { splitAuthority, type Target } from './target.ts';

/** What makes a request belong to a deployment: its host, its prefix, or its upstream's name. */
export interface RouteMatch {
  /** Where the path begins; it ends where a segment does, so /api does not cover /apis. */
  readonly pathPrefix?: string | undefined;
  /** Of the gateway, for this deployment alone; in lower case, without port. */
  readonly host?: string | undefined;
  /** Origin of the upstream, which a request in absolute form names. */
  readonly baseUrl: string;
}

export interface Route<Deployment> {
  readonly match: RouteMatch;
  readonly deployment: Deployment;
}

/** Which deployment a request belongs to: that of its host, else the one with the longest prefix. */
export class Routes<Deployment> {
  readonly #byHost = new Map<string, Deployment>();
  /** Routes by `host:port` of their upstream, longest prefix first. */
  readonly #byUpstream: ReadonlyMap<string, readonly Route<Deployment>[]>;
  readonly #byPrefix: readonly Route<Deployment>[];

  constructor(routes: readonly Route<Deployment>[]) {
    this.#byPrefix = routes.toSorted((a, b) => prefixLength(b) - prefixLength(a));
    this.#byUpstream = Map.groupBy(this.#byPrefix, ({ match }) => upstreamOf(match));
    for (const { match, deployment } of routes) {
      if (match.host !== undefined) this.#byHost.set(match.host, deployment);
    }
  }

  /** @throws GatewayError `no-deployment` */
  find(target: Target): Deployment {
    const { host, port } = splitAuthority(target.authority);
    const found =
      this.#byHost.get(host) ??
      (target.absolute ? this.#named(target, host, port) : underPrefix(this.#byPrefix, target.path));
    if (found !== undefined) return found;
    throw new GatewayError(
      'no-deployment',
      'No deployment is configured for this path and host. See match in the configuration.',
    );
  }

  /** A client that uses the gateway as its proxy asks for the upstream by its name. */
  #named(target: Target, host: string, port: string): Deployment | undefined {
    const routes = this.#byUpstream.get(`${host}:${port || '443'}`) ?? [];
    const [only] = routes;
    return underPrefix(routes, target.path) ?? (routes.length === 1 ? only?.deployment : undefined);
  }
}

function prefixLength({ match }: Route<unknown>): number {
  return match.pathPrefix?.length ?? 0;
}

function upstreamOf({ baseUrl }: RouteMatch): string {
  const { hostname, port } = new URL(baseUrl);
  return `${hostname}:${port || '443'}`;
}

function underPrefix<Deployment>(routes: readonly Route<Deployment>[], path: string): Deployment | undefined {
  return routes.find(({ match }) => match.pathPrefix !== undefined && isUnder(path, match.pathPrefix))
    ?.deployment;
}

function isUnder(path: string, prefix: string): boolean {
  if (!path.startsWith(prefix)) return false;
  const next = path[prefix.length];
  return prefix.endsWith('/') || next === undefined || next === '/' || next === '?';
}
