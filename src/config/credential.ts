import { z } from 'zod';
import { outerSource, source } from './secret-source.ts';
import { fileName, section } from './value-schemas.ts';

const hashes = (folder: string) =>
  section({
    realm: z
      .string({ error: 'the realm of the challenge, as text in quotes' })
      .describe('The realm that the hashes are for.'),
    md5: source(folder).exactOptional().describe('The MD5 of `username:realm:password`, in hex.'),
    sha256: source(folder).exactOptional().describe('Its SHA-256.'),
    'sha512-256': source(folder).exactOptional().describe('Its SHA-512/256.'),
  }).refine((ha1) => ha1.md5 ?? ha1.sha256 ?? ha1['sha512-256'], {
    error: 'has no hash: give at least one of md5, sha256 and sha512-256',
  });

const proof = (folder: string) => ({
  password: source(folder).exactOptional().describe('The password.'),
  ha1: hashes(folder)
    .exactOptional()
    .describe(
      'Hashes of user name, realm and password instead of the password; at least one, for an algorithm that the upstream offers.',
    ),
});

const BOTH = 'has password and ha1: keep one of the two';

const next = (folder: string) =>
  section({
    username: source(folder).exactOptional().describe('The user name, if it changes, too.'),
    ...proof(folder),
  })
    .refine(({ password, ha1 }) => password === undefined || ha1 === undefined, { error: BOTH })
    .refine(({ username, password, ha1 }) => username ?? password ?? ha1, {
      error: 'is empty: give username, password or ha1, as far as they differ',
    });

/** Schema of a credential: a user name with a password or its hash, and optionally the next version. */
export const credentialSchema = (folder: string) =>
  section({
    username: source(folder).describe('The user name.'),
    ...proof(folder),
    next: next(folder)
      .exactOptional()
      .describe(
        'The next version of the credential: as much of it as differs. It is tried before it is used. A next version in the sealed file needs no entry here.',
      ),
  })
    .refine(({ password, ha1 }) => password === undefined || ha1 === undefined, { error: BOTH })
    .refine(({ password, ha1 }) => password ?? ha1, {
      error: 'has no password: give password, or ha1 with a hash of it',
    });

/** Schema of the sealed file and of the identity that decrypts it. */
export const sealedSchema = (folder: string) =>
  section({
    file: fileName(folder).describe('The sealed file.'),
    identity: outerSource(folder).describe('The age identity that opens the file.'),
  });
