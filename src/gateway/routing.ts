import { isIPv6, type Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import { isAnnounced } from '../base/client-address.ts';
import { GatewayError } from '../base/errors.ts';
import { fieldValues, joinedValue } from '../base/raw-headers.ts';
import type { Config } from '../config/schema.ts';
import type { Identification } from '../identity/identification.ts';
import { PrefixMap } from '../policy/path.ts';
import type { RequestHead } from './request-reader.ts';

/** Host and port of RFC 3986 §3.2.2 and §3.2.3; an IPv6 address is in brackets. */
const HOST = /^(?:\[[\da-f:.]+\]|[\w\-.~!$&'()*+,;=%]*)(?::\d*)?$/i;

/**
 * Returns the Host of a request; undefined: HTTP/1.0 without one.
 * @throws GatewayError `bad-request` if it does not say, or says twice, which host it is for
 */
export function hostOf({
  httpVersion,
  headers,
}: Pick<RequestHead, 'httpVersion' | 'headers'>): string | undefined {
  const host = joinedValue(headers, 'host');
  // RFC 9112 §3.2 requires 400 in all cases.
  if (host === undefined && httpVersion === '1.1') {
    throw new GatewayError('bad-request', 'The request has no Host header.');
  }
  if (host !== undefined && !HOST.test(host)) {
    throw new GatewayError('bad-request', 'The Host header is not one host and port.');
  }
  return host;
}

/** For CONNECT, whose target is not a path. */
export function connectUnsupported(): GatewayError {
  return new GatewayError(
    'connect-unsupported',
    'CONNECT is not supported: the gateway must see a request to authenticate it. Request the http:// URL; the gateway uses TLS to the upstream.',
  );
}

/** RFC 9112 §3.2.2: the authority, and what follows it. */
const ABSOLUTE = /^https?:\/\/([^/?]*)(.*)$/is;

/** The parsed target of a request. */
export interface Target {
  /** Host, and port if given, in lower case; empty if the client sent none. */
  readonly authority: string;
  /** True if the request line has a scheme and a host, as for a forward proxy (RFC 9112 §3.2.2). */
  readonly absolute: boolean;
  /** Path and query, byte for byte as the client sent them. */
  readonly path: string;
}

/**
 * Parses a request target without changing a byte of its path. In absolute form its host overrides the Host
 * header (RFC 9112 §3.2.2).
 * @throws GatewayError `bad-request`
 */
export function parseTarget(target: string, hostHeader: string | undefined): Target {
  // RFC 3986 §2. Servers unquote the uri of the answer in different ways, so an upstream would refuse a right one.
  if (target.includes('"') || target.includes('\\'))
    throw invalid('holds " or \\, which a URL writes as %22 and %5C');
  if (target.includes('#')) throw invalid('holds a fragment (#), which is never sent');
  if (target.startsWith('/')) {
    return { authority: (hostHeader ?? '').toLowerCase(), absolute: false, path: target };
  }
  const [, named, path = ''] = ABSOLUTE.exec(target) ?? [];
  if (named === undefined) throw invalid('is neither a path nor an http:// URL');
  if (named === '' || named.includes('@')) throw invalid('names no host, or a user beside it');
  return { authority: named.toLowerCase(), absolute: true, path: path.startsWith('/') ? path : `/${path}` };
}

function invalid(reason: string): GatewayError {
  return new GatewayError('bad-request', `The request target ${reason}.`);
}

/**
 * Splits an authority into host and port; the port is empty if none is given. IPv6 hosts keep their
 * brackets.
 */
export function splitAuthority(authority: string): { host: string; port: string } {
  const colon = authority.lastIndexOf(':');
  if (colon === -1 || colon < authority.lastIndexOf(']')) return { host: authority, port: '' };
  return { host: authority.slice(0, colon), port: authority.slice(colon + 1) };
}

/**
 * Refuses methods that must not reach the upstream. Servers respond to TRACE with the request that they
 * received, including the Authorization that the gateway added (RFC 9110 §9.3.8).
 * @throws GatewayError `method-unsupported`
 */
export function checkMethod({ method, headers }: Pick<RequestHead, 'method' | 'headers'>): void {
  if (method === 'TRACE') {
    throw new GatewayError('method-unsupported', 'TRACE is not supported: it would show the credential.');
  }
  // RFC 9110 §7.6.2: Max-Forwards 0 addresses the gateway, not the upstream.
  if (method === 'OPTIONS' && fieldValues(headers, 'max-forwards').some((value) => /^0+$/.test(value))) {
    throw new GatewayError(
      'method-unsupported',
      'The gateway has no options of its own: leave out Max-Forwards.',
    );
  }
}

/**
 * Refuses a request for a WebSocket: sent on as a plain GET, it would get a response that its client cannot explain.
 * Other protocols are ignored, as RFC 9110 §7.8 allows: HTTP clients offer h2c with requests that mean as much without
 * it. Upgrade counts only if Connection names it, and not with HTTP/1.0.
 * @throws GatewayError `upgrade-unsupported`
 */
export function checkUpgrade({ httpVersion, headers }: Pick<RequestHead, 'httpVersion' | 'headers'>): void {
  const upgrade = joinedValue(headers, 'upgrade');
  if (upgrade === undefined || httpVersion !== '1.1') return;
  if (!lists(upgrade, 'websocket') || !lists(joinedValue(headers, 'connection') ?? '', 'upgrade')) return;
  throw new GatewayError(
    'upgrade-unsupported',
    'The gateway does not carry WebSockets. Use plain requests, or server-sent events for a stream.',
  );
}

/** True if a comma-separated list has the name, in any case; a version behind a slash does not count. */
function lists(list: string, name: string): boolean {
  return list.split(',').some((item) => item.split('/', 1)[0]?.trim().toLowerCase() === name);
}

/** Normalizes a host for comparison: lower case, no port, no trailing dot, IPv6 in its shortest form. */
export function canonicalHost(authority: string): string {
  const { host } = splitAuthority(authority.toLowerCase());
  const name = host.endsWith('.') ? host.slice(0, -1) : host;
  // A URL has no zone, as in fe80::1%eth0.
  if (!name.startsWith('[') || name.includes('%') || !isIPv6(name.slice(1, -1))) return name;
  return new URL(`http://${name}`).hostname;
}

/** The names of the gateway at each listener, its own before those of deployments; undefined: any. */
export function hostsOf({
  listen,
  deployments,
}: Pick<Config, 'listen' | 'deployments'>): (ReadonlySet<string> | undefined)[] {
  const ofDeployments = Object.values(deployments).flatMap(({ match }) => match.host ?? []);
  const canonical = (host: string): string => canonicalHost(isIPv6(host) ? `[${host}]` : host);
  return listen.map(({ hosts }) => hosts && new Set([...hosts, ...ofDeployments].map(canonical)));
}

/**
 * Refuses a request whose Host header is not a name of the gateway. This prevents DNS rebinding: a page can
 * point its own name at the gateway, and the browser then treats the responses as its own. A request in
 * absolute form names the upstream; no browser sends that form to a server.
 * @throws GatewayError `host-unknown`
 */
export function checkHost(hosts: ReadonlySet<string> | undefined, { authority, absolute }: Target): void {
  if (hosts === undefined || absolute || hosts.has(authority) || hosts.has(canonicalHost(authority))) return;
  throw new GatewayError(
    'host-unknown',
    'The Host header is not a name of this gateway. Use a name of listen.hosts in its configuration.',
  );
}

/** The connection that a request came over. */
interface Origin {
  readonly socket: Socket;
  readonly address: string;
}

type Scheme = 'http' | 'https';

/** Methods that change nothing (RFC 9110 §9.2.1), so that a link elsewhere may lead to them. */
const SAFE_METHODS: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS']);
/** RFC 6454 §7: scheme, host, and port unless it is that of the scheme. */
const ORIGIN = /^(https?):\/\/([^/?#@\s]+)$/i;

/**
 * Refuses a request that a page of another origin made a browser send. It applies to clients that are identified
 * without a credential in the request, because such a page may run at a known address, too. Pages on other ports of a
 * host are of the same site (Fetch Metadata), so that only `same-origin` and `none`, which is the user, may change
 * something. Browsers omit Sec-Fetch-Site over plain HTTP to another machine; Origin is there with every unsafe method.
 * @param from the connection, or the scheme by which all clients call; undefined: schemes are not compared
 * @throws GatewayError `cross-site`
 */
export function checkSite(
  { method, headers }: Pick<RequestHead, 'method' | 'headers'>,
  target: Target,
  from: Origin | Scheme | undefined,
  identification?: Pick<Identification, 'isShared'>,
): void {
  const site = joinedValue(headers, 'sec-fetch-site');
  const origin = joinedValue(headers, 'origin');
  const isNotElsewhere = site === undefined || site === 'same-origin' || site === 'none';
  if (isNotElsewhere || (site === 'same-site' && SAFE_METHODS.has(method))) {
    if (origin === undefined) return;
    if (isOwnOrigin(origin, target.authority, schemeOf(target, from, identification))) return;
  }
  throw new GatewayError(
    'cross-site',
    'A page of another origin made a browser send this request. Such requests need an API key or a token.',
  );
}

/**
 * The scheme by which clients call the gateway; undefined: it depends on the listener, or a proxy may have changed it.
 */
export function commonScheme({ listen }: Pick<Config, 'listen'>): Scheme | undefined {
  const schemes = new Set(
    listen.map(({ tls, trustedProxies, proxyProtocol }) => {
      if (trustedProxies.length > 0) return undefined;
      if (tls !== undefined) return 'https';
      return proxyProtocol.length > 0 ? undefined : 'http';
    }),
  );
  return schemes.size === 1 ? [...schemes][0] : undefined;
}

/** False also for `null`, which an opaque origin sends. */
function isOwnOrigin(origin: string, authority: string, scheme: string | undefined): boolean {
  const [, found = '', host = ''] = ORIGIN.exec(origin) ?? [];
  const own = found.toLowerCase();
  if (own === '' || (scheme !== undefined && own !== scheme)) return false;
  return canonicalHost(host) === canonicalHost(authority) && portOf(host, own) === portOf(authority, own);
}

/** The scheme that the client called the gateway by; undefined if a proxy may have changed it. */
function schemeOf(
  { absolute }: Target,
  from: Origin | Scheme | undefined,
  identification?: Pick<Identification, 'isShared'>,
): Scheme | undefined {
  if (absolute) return undefined;
  if (typeof from !== 'object') return from;
  if (identification?.isShared(from.address) === true) return undefined;
  if (from.socket instanceof TLSSocket) return 'https';
  return isAnnounced(from.socket) ? undefined : 'http';
}

function portOf(authority: string, scheme: string): string {
  return splitAuthority(authority).port || (scheme === 'https' ? '443' : '80');
}

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
  /** By `canonicalUpstream`. */
  readonly #byUpstream: ReadonlyMap<string, Named<Deployment>>;
  readonly #byPrefix: PrefixMap<Deployment>;

  constructor(routes: readonly Route<Deployment>[]) {
    this.#byPrefix = prefixesOf(routes);
    const named = routes.flatMap((route) =>
      route.match.baseUrl.map((url) => [canonicalUpstream(new URL(url).host), route] as const),
    );
    const groups = Map.groupBy(named, ([upstream]) => upstream);
    this.#byUpstream = new Map(
      Array.from(groups, ([upstream, group]) => [upstream, namedBy(group.map(([, route]) => route))]),
    );
    for (const { match, deployment } of routes) {
      if (match.host !== undefined) this.#byHost.set(canonicalHost(match.host), deployment);
    }
  }

  /** @throws GatewayError `no-deployment` */
  find(target: Target): Deployment {
    const found =
      (this.#byHost.size === 0 ? undefined : this.#byHost.get(canonicalHost(target.authority))) ??
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
    const named = this.#byUpstream.get(canonicalUpstream(target.authority));
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

/** The name and the port of an upstream, for comparison. */
function canonicalUpstream(authority: string): string {
  return `${canonicalHost(authority)}:${splitAuthority(authority).port || '443'}`;
}
