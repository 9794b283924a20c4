import type { Config } from '../config/schema.ts';

/** Shown as the condition of the client `anonymous`. */
export const IDENTIFIED_BY_NOTHING = 'any other request that presents no API key, token or certificate';

/**
 * Returns a line for each condition of a client; all of them must hold. A request that presents another key, token or
 * certificate is not the client's. `keyText`: describes its keys by their hashes.
 */
export function identifiedBy(
  { addresses, apiKeySha256, certificate, jwt }: Config['clients'][number]['identify'],
  keyText: (hashes: readonly string[]) => string,
): string[] {
  return [
    addresses && `address ${addresses.join(', ')}`,
    apiKeySha256 && keyText(apiKeySha256),
    certificate && `certificate ${pairs(certificate)}`,
    jwt && `token ${pairs({ ...jwt, ...jwt.claims, claims: undefined })}`,
  ].filter((line) => line !== undefined);
}

function pairs(conditions: object): string {
  return Object.entries(conditions)
    .filter(([, value]) => value !== undefined)
    .map(([name, value]) => `${name} ${String(value)}`)
    .join(', ');
}
