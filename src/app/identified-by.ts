import { type ApiKey, apiKeysOf } from '../config/api-keys.ts';
import type { Config } from '../config/schema.ts';

/** Shown as the condition of the client `anonymous`. */
export const IDENTIFIED_BY_NOTHING = 'any other request that presents no API key, token or certificate';

/**
 * Returns a line for each condition of a client; all of them must hold. A request that presents another key, token or
 * certificate is not the client's. `keysText`: describes its API keys.
 */
export function identifiedBy(
  identify: Config['clients'][number]['identify'],
  keysText: (keys: readonly ApiKey[]) => string,
): string[] {
  const { addresses, certificate, jwt } = identify;
  const keys = [...apiKeysOf(identify)];
  return [
    addresses && `address ${addresses.join(', ')}`,
    keys.length > 0 ? keysText(keys) : undefined,
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
