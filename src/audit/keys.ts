import { createHmac, createSecretKey, hkdfSync, type KeyObject } from 'node:crypto';
import type { Secret } from '../base/secret.ts';

/** What is derived from the one key of the configuration, each for its own use. */
export interface AuditKeys {
  readonly seal: KeyObject;
  readonly pseudonym: KeyObject;
  readonly index: KeyObject;
  readonly position: KeyObject;
  /** Tells keys apart and says nothing of them. */
  readonly id: string;
}

/**
 * The keys of a key file: 256 bits in hex.
 * @throws RangeError whose message says what would be right, and does not quote the file
 */
export function auditKeys(master: Secret): AuditKeys {
  const hex = master.reveal().trim();
  if (!/^[0-9a-fA-F]{64}$/.test(hex)) {
    throw new RangeError('does not hold a key: make one with openssl rand -hex 32');
  }
  const bytes = Buffer.from(hex, 'hex');
  const derive = (use: string): Buffer => Buffer.from(hkdfSync('sha256', bytes, '', use, 32));
  return {
    seal: createSecretKey(derive('digest-gateway audit seal')),
    pseudonym: createSecretKey(derive('digest-gateway audit pseudonym')),
    index: createSecretKey(derive('digest-gateway audit index')),
    position: createSecretKey(derive('digest-gateway audit stream position')),
    id: derive('digest-gateway audit key id').toString('hex', 0, 8),
  };
}

/** The same text for the same value as long as the key is the same; nobody without the key can tell of what. */
export function pseudonymOf(keys: AuditKeys, value: string): string {
  return `hmac:${createHmac('sha256', keys.pseudonym).update(value).digest('base64url').slice(0, 22)}`;
}
