import { z } from 'zod';
import { auditSinksSchema } from './audit-sinks.ts';
import { fileName, flag, oneOf, period, SECTION, size, text, whole } from './value-schemas.ts';

const REPLICA = 'letters, digits, "-", "_" and "." only, 64 at most, a letter or digit first';
const PARAMETERS = 'a list of names of query parameters';
const PSEUDONYMISE = 'a list that may hold: address';

/** Schema of the audit log. `folder` is the base of relative file names. */
export const auditSchema = (folder: string) =>
  z.strictObject(
    {
      directory: fileName(folder).describe(
        'The directory of the log. Each replica has a folder in it, for its own user only.',
      ),
      replica: text(REPLICA, /^[A-Za-z0-9][\w.-]{0,63}$/)
        .exactOptional()
        .describe(
          'The folder that this process writes to; its workers write to `REPLICA@1`, `REPLICA@2` and so on. Without it, the host name. Two gateways cannot share a folder.',
        ),
      durability: oneOf(['write', 'fsync', 'async'])
        .default('write')
        .describe(
          'What a record has survived before its response leaves: the end of the process (`write`), of the machine (`fsync`), or neither (`async`).',
        ),
      onFailure: oneOf(['refuse', 'serve'])
        .default('refuse')
        .describe(
          'What happens while the log cannot be written: `refuse` answers 503 `audit-unavailable` until it can; `serve` goes on without records and counts them.',
        ),
      keyFile: fileName(folder).describe(
        'A file with the key of the seals: 256 bits in hex. A holder of the key can forge the log, so keep a copy away from the log.',
      ),
      parameters: z
        .array(text('the name of a query parameter'), { error: PARAMETERS })
        .default([])
        .describe(
          'The query parameters that are recorded by value. Every other one is recorded by its name only.',
        ),
      pseudonymise: z
        .array(oneOf(['address']), { error: PSEUDONYMISE })
        .default([])
        .describe('The fields that are recorded as a keyed hash.'),
      segment: z
        .strictObject(
          {
            size: size()
              .prefault('256MiB')
              .describe('A segment is closed, and then compressed, at this size.'),
            age: period().prefault('1d').describe('A segment is closed, and then compressed, at this age.'),
            keep: period().prefault('365d').describe('A segment is removed at this age.'),
            keepUnsent: size()
              .prefault('10GiB')
              .describe(
                'A segment that a sink has not confirmed is kept beyond `keep`, until a folder has more than this.',
              ),
          },
          { error: SECTION },
        )
        .prefault({})
        .describe('The files of the log.'),
      stream: z
        .strictObject(
          {
            redis: flag()
              .default(false)
              .describe('Sends every record to a stream in Redis, too. It needs `redis`.'),
            maxLength: whole(1000, 1_000_000_000)
              .default(1_000_000)
              .describe('The newest records that the stream keeps; a seal counts as one.'),
          },
          { error: SECTION },
        )
        .exactOptional()
        .describe('One stream for the logs of all replicas.'),
      sinks: auditSinksSchema(folder)
        .exactOptional()
        .describe(
          'Receivers that get every record from the files, at least once. A new one gets the whole log that is there.',
        ),
    },
    { error: SECTION },
  );
