import { X509Certificate } from 'node:crypto';
import { readGuardedFile } from './guarded-file.ts';

/** The largest file that is read, in bytes; the bundle of a distribution has about 250 kB. */
const LARGEST = 4 * 2 ** 20;

/** Conditions for reading a PEM file. */
export interface PemGuard {
  /** The user of this process; undefined: the file's owner is not checked. */
  readonly uid: number | undefined;
  /** False for a private key. */
  readonly readableByOthers: boolean;
}

/**
 * Reads a file that only this user and root can write: another user could otherwise add a certificate
 * authority and impersonate an upstream or a client.
 * @throws Error with the reason; its message never contains text of the file
 */
export async function readPem(file: string, guard: PemGuard): Promise<string> {
  return (await readGuardedFile(file, { ...guard, largest: LARGEST })).bytes.toString('latin1');
}

/** Parses the certificates in a PEM text; undefined if there is none, or an invalid one. */
export function certificatesIn(pem: string): [X509Certificate, ...X509Certificate[]] | undefined {
  const blocks = pem.match(/-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g) ?? [];
  try {
    const [first, ...others] = blocks.map((block) => new X509Certificate(block));
    return first === undefined ? undefined : [first, ...others];
  } catch {
    return undefined;
  }
}
