import { auditKeys } from '../../src/audit/keys.ts';
import { type Verified, type VerifyOptions, verify } from '../../src/audit/reader/verify.ts';
import { Secret } from '../../src/base/secret.ts';
import { AUDIT_KEY } from './audit-log.ts';

/** Checks a log of a test with its key, unless the options name other ones. */
export function verified(directory: string, change: Partial<VerifyOptions> = {}): Promise<Verified> {
  const keys = [auditKeys(new Secret(AUDIT_KEY))];
  return verify({ directory, keys, heads: [], onBytes: () => undefined, ...change });
}
