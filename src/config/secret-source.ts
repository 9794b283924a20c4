import { z } from 'zod';
import { Secret } from '../base/secret.ts';
import { fileName, flag, NAME, text } from './value-schemas.ts';

/** Title of the section of the configuration page that describes all sources. */
export const SOURCE_TITLE = 'Secret sources';
const ANY = 'a mapping: { env: NAME }, { file: NAME }, { sealed: NAME } or { value: TEXT }';
const ONE_SOURCE = 'give exactly one of env, file, sealed and value';
const NO_SOURCE = `has no source: ${ONE_SOURCE}`;
const SEVERAL = `has more than one source: ${ONE_SOURCE}`;
const MISPLACED = 'has readableByOthers without file: leave it out';

/** Schema of a secret's source. `folder` is the base of relative file names. */
export const source = (folder: string, expected = ANY) =>
  z
    .strictObject(
      {
        env: text('the name of an environment variable', /^[A-Za-z_]\w*$/)
          .exactOptional()
          .describe('An environment variable.'),
        file: fileName(folder)
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
export const keyFile = (folder: string) =>
  z.union(
    [
      fileName(folder).transform((file) => ({ file, readableByOthers: false })),
      z.strictObject({ file: fileName(folder), readableByOthers: flag() }),
    ],
    { error: 'the name of a file, or { file: NAME, readableByOthers: true }' },
  );

/**
 * Schema of a source outside the sealed file and the configuration, for the identity that decrypts the
 * sealed file.
 */
export const outerSource = (folder: string) =>
  source(folder, 'a mapping: { env: NAME } or { file: NAME }').transform((found, context) => {
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
