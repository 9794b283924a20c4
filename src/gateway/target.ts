import { GatewayError } from '../base/errors.ts';

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
  const start = endOfScheme(target);
  if (start === -1) throw invalid('is neither a path nor an http:// URL');
  const end = endOfAuthority(target, start);
  const authority = target.slice(start, end).toLowerCase();
  if (authority === '' || authority.includes('@')) throw invalid('names no host, or a user beside it');
  const path = target.slice(end);
  return { authority, absolute: true, path: path.startsWith('/') ? path : `/${path}` };
}

function endOfScheme(target: string): number {
  const scheme = target.slice(0, 8).toLowerCase();
  if (scheme === 'https://') return 8;
  return scheme.startsWith('http://') ? 7 : -1;
}

function endOfAuthority(target: string, start: number): number {
  for (let index = start; index < target.length; index += 1) {
    const character = target[index];
    if (character === '/' || character === '?') return index;
  }
  return target.length;
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
