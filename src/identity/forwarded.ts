import { type Address, type Network, parseAddress } from '../base/network.ts';
import { fieldValues, type RawHeaders } from '../base/raw-headers.ts';

/** The header in which trusted proxies send the client's address. */
export type ForwardedHeader = 'X-Forwarded-For' | 'Forwarded';

export interface ProxySettings {
  /** Proxies whose header is trusted for the client's address. */
  readonly trustedProxies: readonly Network[];
  /** Only this header is read: a proxy may pass on the other one unchecked. */
  readonly forwardedHeader: ForwardedHeader;
}

/** True if the address is a trusted proxy. */
export function isTrusted({ trustedProxies }: ProxySettings, address: Address): boolean {
  return trustedProxies.some((network) => network.contains(address));
}

/**
 * Returns the client's address behind trusted proxies: the last hop in the header that is not a trusted
 * proxy itself. Hops before it are unverified claims. Undefined if the header does not contain the address.
 */
export function forwardedClient(settings: ProxySettings, headers: RawHeaders): Address | undefined {
  const lines = fieldValues(headers, settings.forwardedHeader.toLowerCase());
  let nearest: Address | undefined;
  for (const hop of hops(settings.forwardedHeader, lines)) {
    if (hop === UNNAMED) return undefined;
    nearest = hop;
    if (!isTrusted(settings, hop)) return nearest;
  }
  return nearest;
}

/** A hop without a usable address: unknown, obfuscated (RFC 7239 §6), or malformed. */
const UNNAMED = Symbol('unnamed');

/**
 * Yields the hops of the header, the latest first. A malformed field line yields one unnamed hop and ends
 * the list, because the hops before it cannot be trusted.
 */
function* hops(header: ForwardedHeader, lines: readonly string[]): Generator<Address | typeof UNNAMED> {
  for (const line of lines.toReversed()) {
    const nodes = header === 'Forwarded' ? forwardedNodes(line) : line.split(',').map((node) => node.trim());
    if (nodes === undefined) {
      yield UNNAMED;
      return;
    }
    for (const node of nodes.toReversed()) yield nodeAddress(node) ?? UNNAMED;
  }
}

/** Parses an address, with or without a port; IPv6 in brackets (RFC 7239 §6), which some proxies omit. */
function nodeAddress(node: string): Address | undefined {
  const [, bracketed, plain] =
    /^(?:\[([\da-f:.]+)\]|(\d+\.\d+\.\d+\.\d+))(?::(?:\d{1,5}|_[\w.-]+))?$/i.exec(node) ?? [];
  return parseAddress(bracketed ?? plain ?? node);
}

/**
 * `name=token` or `name="quoted"`, and its end: a semicolon, a comma, or the end of the line (RFC 7239 §4).
 */
const PAIR = /[ \t]*([\w!#$%&'*+.^`|~-]+)=(?:([\w!#$%&'*+.^`|~-]+)|"((?:[^"\\]|\\.)*)")[ \t]*(;|,|$)/gy;

/**
 * Returns the `for` of each element, in order, or '' where an element has none; undefined if the line is
 * malformed.
 */
function forwardedNodes(line: string): string[] | undefined {
  const nodes: string[] = [];
  let node: string | undefined;
  let read = 0;
  for (const [pair, name = '', token, quoted = '', end] of line.matchAll(PAIR)) {
    read += pair.length;
    if (name.toLowerCase() === 'for') {
      if (node !== undefined) return undefined;
      node = token ?? quoted.replace(/\\(.)/g, '$1');
    }
    if (end === ';') continue;
    nodes.push(node ?? '');
    node = undefined;
  }
  // RFC 7239 §4 allows a semicolon behind the last pair: without its element, one that the client sent would count.
  if (line.endsWith(';')) nodes.push(node ?? '');
  return read === line.length ? nodes : undefined;
}
