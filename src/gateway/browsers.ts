import { isIPv6 } from 'node:net';
import { GatewayError } from '../base/errors.ts';
import { joinedValue, type RawHeaders } from '../base/raw-headers.ts';
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

/**
 * Refuses a request that a page of another site made a browser send. It applies to clients that are
 * identified without a credential in the request, because such a page may run at a known address, too.
 * Browsers omit Sec-Fetch-Site (Fetch Metadata) over plain HTTP to another machine; Origin is checked then,
 * if it is present.
 * @throws GatewayError `cross-site`
 */
export function checkSite(headers: RawHeaders, { authority }: Target): void {
  const site = joinedValue(headers, 'sec-fetch-site');
  const origin = joinedValue(headers, 'origin');
  if (site === undefined && origin === undefined) return;
  const foreign = site === undefined ? isForeign(origin ?? '', authority) : site === 'cross-site';
  if (!foreign) return;
  throw new GatewayError(
    'cross-site',
    'A page of another site made a browser send this request. Such requests need an API key or a token.',
  );
}

/** True if an Origin (RFC 6454 §7) is another host, or `null`, which an opaque origin sends. */
function isForeign(origin: string, authority: string): boolean {
  const scheme = origin.indexOf('://');
  return scheme === -1 || canonicalHost(origin.slice(scheme + 3)) !== canonicalHost(authority);
}
