import { createSecretKey, hkdfSync, type KeyObject } from 'node:crypto';
import type { Secret } from '../base/secret.ts';

/** Keys derived from the one key of the configuration, one for each use. */
export interface AuditKeys {
  readonly seal: KeyObject;
  readonly index: KeyObject;
  readonly position: KeyObject;
  readonly sinkPosition: KeyObject;
  /** Tells keys apart and reveals nothing of them. */
  readonly id: string;
}

/**
 * Derives the keys (HKDF, RFC 5869) from the content of a key file: 256 bits in hex.
 * @throws RangeError if the content is not such a key; the message does not quote it
 */
export function auditKeys(master: Secret): AuditKeys {
  const hex = master.reveal().trim();
  if (!/^[0-9a-fA-F]{64}$/.test(hex)) {
    throw new RangeError('does not hold a key');
  }
  const bytes = Buffer.from(hex, 'hex');
  const derive = (use: string): Buffer => Buffer.from(hkdfSync('sha256', bytes, '', use, 32));
  return {
    seal: createSecretKey(derive('digest-gateway audit seal')),
    index: createSecretKey(derive('digest-gateway audit index')),
    position: createSecretKey(derive('digest-gateway audit stream position')),
    sinkPosition: createSecretKey(derive('digest-gateway audit sink position')),
    id: derive('digest-gateway audit key id').toString('hex', 0, 8),
  };
}
