import type { IncomingHttpHeaders } from 'node:http';
import { isIPv6 } from 'node:net';
import { GatewayError } from '../base/errors.ts';
import { splitAuthority, type Target } from './target.ts';

/** A host as it is compared: in lower case, without port and trailing dot, IPv6 in its shortest form. */
export function canonicalHost(authority: string): string {
  const { host } = splitAuthority(authority.toLowerCase());
  const name = host.endsWith('.') ? host.slice(0, -1) : host;
  if (!name.startsWith('[') || !isIPv6(name.slice(1, -1))) return name;
  return new URL(`http://${name}`).hostname;
}

/**
 * Refuses a request that calls the gateway by a name that it does not have: a page can make its own name lead here (DNS
 * rebinding), and its browser then takes the responses for its own. A request in absolute form names the upstream, and
 * no browser sends that form to a server.
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
 * Refuses a request that a page of another site made its browser send. For clients that are known without anything
 * that the request says: such a page is on a machine whose address is known, too. Browsers leave out Sec-Fetch-Site
 * (Fetch Metadata) where plain HTTP leads to another machine; then Origin tells, if there is one.
 * @throws GatewayError `cross-site`
 */
export function checkSite(headers: IncomingHttpHeaders, { authority }: Target): void {
  const site = headers['sec-fetch-site'];
  const { origin } = headers;
  if (site === undefined && origin === undefined) return;
  const foreign = site === undefined ? isForeign(origin ?? '', authority) : site === 'cross-site';
  if (!foreign) return;
  throw new GatewayError(
    'cross-site',
    'A page of another site made a browser send this request. Such requests need an API key or a token.',
  );
}

/** Whether an Origin (RFC 6454 §7) is of another host; `null`, of a page without a site, is. */
function isForeign(origin: string, authority: string): boolean {
  const scheme = origin.indexOf('://');
  return scheme === -1 || canonicalHost(origin.slice(scheme + 3)) !== canonicalHost(authority);
}
