import { z } from 'zod';
import { Secret } from '../base/secret.ts';
import { deploymentSchema } from './deployment.ts';
import { bindAddress, fileName, flag, port, record, SECTION, text } from './values.ts';

const listener = (defaultPort: number) => ({
  address: bindAddress().default('127.0.0.1'),
  port: port().default(defaultPort),
});

const ONE_SOURCE = 'give exactly one of env, file and value';

const source = (folder: string) =>
  z
    .strictObject(
      {
        env: text('the name of an environment variable', /^[A-Za-z_]\w*$/).exactOptional(),
        file: fileName(folder).exactOptional(),
        value: text('text in quotes').exactOptional(),
      },
      { error: 'a mapping: { env: NAME }, { file: NAME } or { value: TEXT }' },
    )
    .transform(({ env, file, value }, context): CredentialSource => {
      const given: CredentialSource[] = [];
      if (env !== undefined) given.push({ env });
      if (file !== undefined) given.push({ file });
      if (value !== undefined) given.push({ value: new Secret(value) });
      const [first, second] = given;
      if (first !== undefined && second === undefined) {
        return first;
      }
      const found = first === undefined ? 'has no source' : 'has more than one source';
      context.addIssue({ code: 'custom', message: `${found}: ${ONE_SOURCE}` });
      return z.NEVER;
    });

/** Where a user name or password comes from. */
export type CredentialSource = { env: string } | { file: string } | { value: Secret };

const credential = (folder: string) =>
  z.strictObject({ username: source(folder), password: source(folder) }, { error: SECTION });

/**
 * What a configuration may say. Rules between its parts are in `rules.ts`. `folder` is where
 * relative names of files start.
 */
export const configSchema = (folder: string) =>
  z.strictObject(
    {
      listen: z.strictObject(listener(8080), { error: SECTION }).prefault({}),
      control: z
        .strictObject(
          {
            ...listener(8081),
            tokenSha256: text('the SHA-256 of the token, 64 hex digits', /^[0-9a-fA-F]{64}$/)
              .transform((hex) => hex.toLowerCase())
              .exactOptional(),
          },
          { error: SECTION },
        )
        .prefault({}),
      anonymous: flag().default(false),
      credentials: record(credential(folder)).prefault({}),
      deployments: record(deploymentSchema(folder), 'a mapping of at least one name to its upstream service'),
    },
    { error: SECTION },
  );

/** A configuration that was found right: durations in ms, sizes in bytes, defaults filled in, file names absolute. */
export type Config = z.output<ReturnType<typeof configSchema>>;
