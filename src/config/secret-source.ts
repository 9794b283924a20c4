import { z } from 'zod';
import { Secret } from '../base/secret.ts';
import { fileName, flag, NAME, section, text } from './value-schemas.ts';

/** Title of the section of the configuration page that describes all sources. */
export const SOURCE_TITLE = 'Secret sources';
const ANY = 'a mapping: { env: NAME }, { file: NAME }, { sealed: NAME } or { value: TEXT }';
const ONE_SOURCE = 'give exactly one of env, file, sealed and value';
const NO_SOURCE = `has no source: ${ONE_SOURCE}`;
const SEVERAL = `has more than one source: ${ONE_SOURCE}`;
const MISPLACED = 'has readableByOthers without file: leave it out';

/** Schema of a secret's source. */
export const source = (expected = ANY) =>
  z
    .strictObject(
      {
        env: text('the name of an environment variable', /^[A-Za-z_]\w*$/)
          .exactOptional()
          .describe('An environment variable.'),
        file: fileName()
          .exactOptional()
          .describe(
            'A file that holds the secret alone; one line break at its end does not count. Others may neither read nor write it.',
          ),
        readableByOthers: flag()
          .exactOptional()
          .describe('Accepts a file that others can read, where an orchestrator sets the mode.'),
        sealed: text('the name of an entry of the sealed file', NAME)
          .exactOptional()
          .describe('An entry of the sealed file.'),
        value: text('text in quotes')
          .exactOptional()
          .describe('The secret itself. A warning says so if it is a password.'),
      },
      { error: expected },
    )
    .transform(({ readableByOthers, value, ...others }, context): SecretSource => {
      const given = Object.entries({ ...others, ...(value !== undefined && { value: new Secret(value) }) });
      const isMisplaced = readableByOthers !== undefined && others.file === undefined;
      if (given.length === 1 && !isMisplaced) {
        const guard = readableByOthers === undefined ? {} : { readableByOthers };
        return Object.fromEntries([...given, ...Object.entries(guard)]) as SecretSource;
      }
      const found = given.length === 0 ? NO_SOURCE : SEVERAL;
      context.addIssue({ code: 'custom', message: isMisplaced ? MISPLACED : found });
      return z.NEVER;
    })
    .meta({ title: SOURCE_TITLE });

/** True for the schema that `source` returns. */
export function isSource(schema: z.ZodType): boolean {
  return z.globalRegistry.get(schema)?.title === SOURCE_TITLE;
}

/**
 * Schema of a private key's file: its name, or its name with permission for others to read it, which some
 * orchestrators need.
 */
export const keyFile = () =>
  z.union(
    [
      fileName().transform((file) => ({ file, readableByOthers: false })),
      z.strictObject({ file: fileName(), readableByOthers: flag() }),
    ],
    { error: 'the name of a file, or { file: NAME, readableByOthers: true }' },
  );

/**
 * Schema of a source outside the sealed file and the configuration, for the identity that decrypts the
 * sealed file.
 */
const outerSource = () =>
  source('a mapping: { env: NAME } or { file: NAME }').transform((found, context) => {
    if ('env' in found || 'file' in found) return found;
    context.addIssue({ code: 'custom', message: 'must come from env or file: it opens everything else' });
    return z.NEVER;
  });

/** Source of a user name or password: exactly one of these. */
export type SecretSource =
  | { env: string }
  | { file: string; readableByOthers?: boolean }
  | { sealed: string }
  | { value: Secret };

const hashes = () =>
  section({
    realm: z
      .string({ error: 'the realm of the challenge, as text in quotes' })
      .describe('The realm that the hashes are for.'),
    md5: source().exactOptional().describe('The MD5 of `username:realm:password`, in hex.'),
    sha256: source().exactOptional().describe('Its SHA-256.'),
    'sha512-256': source().exactOptional().describe('Its SHA-512/256.'),
  }).refine((ha1) => ha1.md5 ?? ha1.sha256 ?? ha1['sha512-256'], {
    error: 'has no hash: give at least one of md5, sha256 and sha512-256',
  });

const proof = () => ({
  password: source().exactOptional().describe('The password.'),
  ha1: hashes()
    .exactOptional()
    .describe(
      'Hashes of user name, realm and password instead of the password; at least one, for an algorithm that the upstream offers.',
    ),
});

const BOTH = 'has password and ha1: keep one of the two';

const next = () =>
  section({
    username: source().exactOptional().describe('The user name, if it changes, too.'),
    ...proof(),
  })
    .refine(({ password, ha1 }) => password === undefined || ha1 === undefined, { error: BOTH })
    .refine(({ username, password, ha1 }) => username ?? password ?? ha1, {
      error: 'is empty: give username, password or ha1, as far as they differ',
    });

/** Schema of a credential: a user name with a password or its hash, and optionally the next version. */
export const credentialSchema = () =>
  section({
    username: source().describe(
      'The user name. It and the password are sent in UTF-8 (NFC) only: an upstream that reads ISO-8859-1 refuses letters outside ASCII. The user name has to be ASCII there, and `ha1` the hash that the upstream expects.',
    ),
    ...proof(),
    next: next()
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
export const sealedSchema = () =>
  section({
    file: fileName().describe('The sealed file.'),
    identity: outerSource().describe('The age identity that opens the file.'),
  });
