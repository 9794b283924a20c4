import { certificatesIn } from '../base/pem.ts';

/** TLS settings of the data plane; texts are PEM. */
export interface ListenTls {
  readonly cert: string;
  readonly key: string;
  /** Authorities of client certificates; undefined: clients are not asked for a certificate. */
  readonly clientCa: string | undefined;
  readonly minVersion: 'TLSv1.2' | 'TLSv1.3';
  /** Expiry of the certificate, in seconds of Unix time. */
  readonly expires: number;
}

/**
 * True if `after` may refuse a connection that `before` allows: its version of TLS is too old, or the authority
 * of its client certificate was removed.
 */
export function trustsLess(before: ListenTls, after: ListenTls): boolean {
  if (before.minVersion < after.minVersion) return true;
  const kept = new Set(fingerprintsIn(after.clientCa));
  return fingerprintsIn(before.clientCa).some((fingerprint) => !kept.has(fingerprint));
}

function fingerprintsIn(pem: string | undefined): string[] {
  return (certificatesIn(pem ?? '') ?? []).map(({ fingerprint256 }) => fingerprint256);
}
