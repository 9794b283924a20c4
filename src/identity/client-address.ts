import type { IncomingMessage } from 'node:http';
import type { Address, Network } from '../base/network.ts';
import { type ForwardedHeader, hops, UNNAMED } from './forwarded.ts';

export interface ProxySettings {
  /** Whose word is taken for whom they ask. */
  readonly trustedProxies: readonly Network[];
  /** The one header that is read: who reads both, believes what a proxy passed on without looking at it. */
  readonly forwardedHeader: ForwardedHeader;
}

export function isTrusted({ trustedProxies }: ProxySettings, address: Address): boolean {
  return trustedProxies.some((network) => network.contains(address));
}

/**
 * Whom a trusted proxy asks for: the last hop in the header that is no trusted proxy itself, since whatever
 * stands left of that is its own claim. undefined: the header does not tell.
 */
export function forwardedClient(
  settings: ProxySettings,
  { headersDistinct }: Pick<IncomingMessage, 'headersDistinct'>,
): Address | undefined {
  const lines = headersDistinct[settings.forwardedHeader.toLowerCase()] ?? [];
  let nearest: Address | undefined;
  for (const hop of hops(settings.forwardedHeader, lines)) {
    if (hop === UNNAMED) return undefined;
    nearest = hop;
    if (!isTrusted(settings, hop)) return nearest;
  }
  return nearest;
}
