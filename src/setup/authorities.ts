import { isNativeError } from 'node:util/types';
import { certificatesIn, readPem } from '../base/guarded-file.ts';
import type { Issue, Path } from '../config/issues.ts';

/**
 * Reads the `caFile` of a section, so that an invalid one is reported before the first handshake fails; undefined
 * without one. An issue is added to the others. `uid`: the user of this process; without one, owners of files are not
 * checked.
 */
export async function readAuthorityOf(
  caFile: string | undefined,
  section: Path,
  uid: number | undefined,
  issues: Issue[],
): Promise<string | undefined> {
  try {
    return await readAuthority(caFile, uid);
  } catch (error) {
    const message = isNativeError(error) ? error.message : 'cannot be read';
    issues.push({ path: [...section, 'caFile'], message });
    return undefined;
  }
}

/**
 * Reads a file of authorities; undefined without a name. `uid` is the user of this process.
 * @throws Error with the reason
 */
export async function readAuthority(
  caFile: string | undefined,
  uid: number | undefined,
): Promise<string | undefined> {
  if (caFile === undefined) return undefined;
  const pem = await readPem(caFile, { uid, readableByOthers: true });
  if (certificatesIn(pem) !== undefined) return pem;
  throw new Error(`${caFile} holds no certificate: name a readable file of certificates in PEM form`);
}
