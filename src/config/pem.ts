import { X509Certificate } from 'node:crypto';
import { readGuardedFile } from '../base/guarded-file.ts';

/** In bytes; the bundle of a distribution has about 250 kB. */
const LARGEST = 4 * 2 ** 20;

/** What a file in PEM form may be to be trusted. */
export interface PemGuard {
  /** The user of this process; without one, the file's owner is not checked. */
  readonly uid: number | undefined;
  /** False where it holds a private key. */
  readonly readableByOthers: boolean;
}

/**
 * The text of a file that only this user and root can write: another certificate authority would let its writer in,
 * or let him pose as an upstream. Throws an Error whose message says what is wrong with the file and never quotes it.
 */
export async function readPem(file: string, guard: PemGuard): Promise<string> {
  return (await readGuardedFile(file, { ...guard, largest: LARGEST })).bytes.toString('latin1');
}

/** The certificates of a text in PEM form; undefined: there is none, or one that cannot be read. */
export function certificatesIn(pem: string): [X509Certificate, ...X509Certificate[]] | undefined {
  const blocks = pem.match(/-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g) ?? [];
  try {
    const [first, ...others] = blocks.map((block) => new X509Certificate(block));
    return first === undefined ? undefined : [first, ...others];
  } catch {
    return undefined;
  }
}
