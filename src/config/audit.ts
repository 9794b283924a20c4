import { z } from 'zod';
import { fileName, oneOf, period, SECTION, size, text } from './values.ts';

const REPLICA = 'letters, digits, "-", "_" and "." only, 64 at most, a letter or digit first';
const PARAMETERS = 'a list of names of query parameters';
const PSEUDONYMISE = 'a list that may hold: address';

/** Where it is recorded who got what. `folder` is where relative names of files start. */
export const auditSchema = (folder: string) =>
  z.strictObject(
    {
      directory: fileName(folder),
      replica: text(REPLICA, /^[A-Za-z0-9][\w.-]{0,63}$/).exactOptional(),
      durability: oneOf(['write', 'fsync', 'async']).default('write'),
      onFailure: oneOf(['refuse', 'serve']).default('refuse'),
      keyFile: fileName(folder),
      parameters: z.array(text('the name of a query parameter'), { error: PARAMETERS }).default([]),
      pseudonymise: z.array(oneOf(['address']), { error: PSEUDONYMISE }).default([]),
      segment: z
        .strictObject(
          {
            size: size().prefault('256MiB'),
            age: period().prefault('1d'),
            keep: period().prefault('365d'),
          },
          { error: SECTION },
        )
        .prefault({}),
    },
    { error: SECTION },
  );
