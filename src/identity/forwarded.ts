import { type Address, parseAddress } from '../base/network.ts';

/** The header in which trusted proxies say for whom they ask. */
export type ForwardedHeader = 'X-Forwarded-For' | 'Forwarded';

/** A hop that is named, but not by an address: unknown, obfuscated (RFC 7239 §6), or malformed. */
export const UNNAMED = Symbol('unnamed');

/**
 * Who stands in the header, the latest hop first. A field line that is malformed gives one unnamed hop and
 * ends the list: whatever stands left of it was written by somebody farther away.
 */
export function* hops(
  header: ForwardedHeader,
  lines: readonly string[],
): Generator<Address | typeof UNNAMED> {
  for (const line of lines.toReversed()) {
    const nodes = header === 'Forwarded' ? forwardedNodes(line) : line.split(',').map((node) => node.trim());
    if (nodes === undefined) {
      yield UNNAMED;
      return;
    }
    for (const node of nodes.toReversed()) yield nodeAddress(node) ?? UNNAMED;
  }
}

/** An address with or without a port, IPv6 in brackets if it has one (RFC 7239 §6); some proxies leave them out. */
function nodeAddress(node: string): Address | undefined {
  const [, bracketed, plain] =
    /^(?:\[([\da-f:.]+)\]|(\d+\.\d+\.\d+\.\d+))(?::(?:\d{1,5}|_[\w.-]+))?$/i.exec(node) ?? [];
  return parseAddress(bracketed ?? plain ?? node);
}

/** `name=token` or `name="quoted"`, and what ends it: a semicolon, a comma, or the line (RFC 7239 §4). */
const PAIR = /[ \t]*([\w!#$%&'*+.^`|~-]+)=(?:([\w!#$%&'*+.^`|~-]+)|"((?:[^"\\]|\\.)*)")[ \t]*(;|,|$)/gy;

/** The `for` of each element, in order; empty where an element has none. undefined: the line is malformed. */
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
  return read === line.length ? nodes : undefined;
}
