import { z } from 'zod';
import type { Complaint } from './faults.ts';
import { valueAt } from './tree.ts';
import { fileName, flag, oneOf, period, SECTION, size, text, whole } from './values.ts';

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
      stream: z
        .strictObject(
          { redis: flag().default(false), maxLength: whole(1000, 1_000_000_000).default(1_000_000) },
          { error: SECTION },
        )
        .exactOptional(),
    },
    { error: SECTION },
  );

/** The rules between \`audit\` and what else there is. */
export function* auditFits(tree: unknown): Generator<Complaint> {
  if (valueAt(tree, ['audit', 'stream', 'redis']) !== true || valueAt(tree, ['redis']) !== undefined) return;
  yield {
    path: ['audit', 'stream', 'redis'],
    message: 'needs a Redis: give redis, or leave stream out',
  };
}
