import type { Address, Network } from '../base/network.ts';
import { fieldValues, type RawHeaders } from '../base/raw-headers.ts';
import { type ForwardedHeader, hops, UNNAMED } from './forwarded.ts';

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
