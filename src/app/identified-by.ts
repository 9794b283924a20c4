import type { Config } from '../config/schema.ts';

/** Returns a line for each condition of a client; all of them must hold. `keyText`: describes its keys by their hashes. */
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
