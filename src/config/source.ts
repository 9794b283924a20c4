import { z } from 'zod';
import { Secret } from '../base/secret.ts';
import { fileName, text } from './values.ts';

const ONE_SOURCE = 'give exactly one of env, file and value';

/** A secret's source. `folder` is where relative names of files start. */
export const source = (folder: string) =>
  z
    .strictObject(
      {
        env: text('the name of an environment variable', /^[A-Za-z_]\w*$/).exactOptional(),
        file: fileName(folder).exactOptional(),
        value: text('text in quotes').exactOptional(),
      },
      { error: 'a mapping: { env: NAME }, { file: NAME } or { value: TEXT }' },
    )
    .transform(({ env, file, value }, context): SecretSource => {
      const given: SecretSource[] = [];
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

/** Where a user name or password comes from: exactly one of these. */
export type SecretSource = { env: string } | { file: string } | { value: Secret };
