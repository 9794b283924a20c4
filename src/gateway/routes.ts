import { GatewayError } from '../base/errors.ts';
import { PrefixMap } from '../policy/path.ts';
import { splitAuthority, type Target } from './request-checks.ts';

/** The criteria that select a deployment: its host, its path prefix, or its upstream's name. */
export interface RouteMatch {
  /** Start of the path. It matches whole segments only, so /api does not match /apis. */
  readonly pathPrefix?: string | undefined;
  /** A host name of the gateway for this deployment alone; in lower case, without port. */
  readonly host?: string | undefined;
  /** Base URLs of the upstream; a request in absolute form selects by host and port of one of them. */
  readonly baseUrl: readonly string[];
}

export interface Route<Deployment> {
  readonly match: RouteMatch;
  readonly deployment: Deployment;
}

/** Selects the deployment of a request: by host, else by the longest path prefix. */
export class Routes<Deployment> {
  readonly #byHost = new Map<string, Deployment>();
  /** By `host:port` of the upstream. */
  readonly #byUpstream: ReadonlyMap<string, Named<Deployment>>;
  readonly #byPrefix: PrefixMap<Deployment>;

  constructor(routes: readonly Route<Deployment>[]) {
    this.#byPrefix = prefixesOf(routes);
    const named = routes.flatMap((route) =>
      route.match.baseUrl.map((url) => [upstreamOf(url), route] as const),
    );
    const groups = Map.groupBy(named, ([upstream]) => upstream);
    this.#byUpstream = new Map(
      Array.from(groups, ([upstream, group]) => [upstream, namedBy(group.map(([, route]) => route))]),
    );
    for (const { match, deployment } of routes) {
      if (match.host !== undefined) this.#byHost.set(match.host, deployment);
    }
  }

  /** @throws GatewayError `no-deployment` */
  find(target: Target): Deployment {
    const found =
      (this.#byHost.size === 0 ? undefined : this.#byHost.get(splitAuthority(target.authority).host)) ??
      (target.absolute ? this.#named(target) : this.#byPrefix.longest(target.path));
    if (found !== undefined) return found;
    throw new GatewayError(
      'no-deployment',
      'No deployment is configured for this path and host. See match in the configuration.',
    );
  }

  /**
   * Finds the deployment for a client that uses the gateway as a proxy and requests the upstream's own URL.
   */
  #named(target: Target): Deployment | undefined {
    const { host, port } = splitAuthority(target.authority);
    const named = this.#byUpstream.get(`${host}:${port || '443'}`);
    return named?.byPrefix.longest(target.path) ?? named?.only;
  }
}

/** The deployments of one upstream. */
interface Named<Deployment> {
  readonly byPrefix: PrefixMap<Deployment>;
  /** Undefined if there are several. */
  readonly only: Deployment | undefined;
}

function namedBy<Deployment>(routes: readonly Route<Deployment>[]): Named<Deployment> {
  return { byPrefix: prefixesOf(routes), only: routes.length === 1 ? routes[0]?.deployment : undefined };
}

function prefixesOf<Deployment>(routes: readonly Route<Deployment>[]): PrefixMap<Deployment> {
  return new PrefixMap(
    routes.flatMap(({ match: { pathPrefix }, deployment }) =>
      pathPrefix === undefined ? [] : [[pathPrefix, deployment] as const],
    ),
  );
}

function upstreamOf(baseUrl: string): string {
  const { hostname, port } = new URL(baseUrl);
  return `${hostname}:${port || '443'}`;
}
