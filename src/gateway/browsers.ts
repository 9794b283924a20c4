import { isIPv6, type Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import { GatewayError } from '../base/errors.ts';
import { joinedValue } from '../base/raw-headers.ts';
import type { Identification } from '../identity/identification.ts';
import type { RequestHead } from './request-head.ts';
import { splitAuthority, type Target } from './target.ts';

/** Normalizes a host for comparison: lower case, no port, no trailing dot, IPv6 in its shortest form. */
export function canonicalHost(authority: string): string {
  const { host } = splitAuthority(authority.toLowerCase());
  const name = host.endsWith('.') ? host.slice(0, -1) : host;
  if (!name.startsWith('[') || !isIPv6(name.slice(1, -1))) return name;
  return new URL(`http://${name}`).hostname;
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

/** Methods that change nothing (RFC 9110 §9.2.1), so that a link elsewhere may lead to them. */
const SAFE_METHODS: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS']);
/** RFC 6454 §7: scheme, host, and port unless it is that of the scheme. */
const ORIGIN = /^(https?):\/\/([^/?#@\s]+)$/i;

/**
 * Refuses a request that a page of another origin made a browser send. It applies to clients that are identified
 * without a credential in the request, because such a page may run at a known address, too. Pages on other ports of a
 * host are of the same site (Fetch Metadata), so that only `same-origin` and `none`, which is the user, may change
 * something. Browsers omit Sec-Fetch-Site over plain HTTP to another machine; Origin is there with every unsafe method.
 * @throws GatewayError `cross-site`
 */
export function checkSite(
  { method, headers }: Pick<RequestHead, 'method' | 'headers'>,
  target: Target,
  socket: Socket,
  identification: Pick<Identification, 'isShared'>,
): void {
  const site = joinedValue(headers, 'sec-fetch-site');
  const origin = joinedValue(headers, 'origin');
  if (isSiteAllowed(method, site)) {
    if (origin === undefined) return;
    if (isOwnOrigin(origin, target.authority, schemeOf(target, socket, identification))) return;
  }
  throw new GatewayError(
    'cross-site',
    'A page of another origin made a browser send this request. Such requests need an API key or a token.',
  );
}

function isSiteAllowed(method: string, site: string | undefined): boolean {
  if (site === undefined || site === 'same-origin' || site === 'none') return true;
  return site === 'same-site' && SAFE_METHODS.has(method);
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
  socket: Socket,
  identification: Pick<Identification, 'isShared'>,
): string | undefined {
  if (absolute || identification.isShared(socket.remoteAddress ?? '')) return undefined;
  return socket instanceof TLSSocket ? 'https' : 'http';
}

function portOf(authority: string, scheme: string): string {
  return splitAuthority(authority).port || (scheme === 'https' ? '443' : '80');
}
