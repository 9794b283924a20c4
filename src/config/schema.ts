import { z } from 'zod';
import { auditSchema } from './audit.ts';
import { clientSchema, jwtSchema } from './clients.ts';
import { credentialSchema, sealedSchema } from './credential.ts';
import { deploymentSchema } from './deployment.ts';
import { listener, listenSchema } from './listen.ts';
import { redisSchema } from './redis.ts';
import { duration, durationOrZero, flag, oneOf, record, SECTION, text } from './values.ts';

/**
 * What a configuration may say. Rules between its parts are in `rules.ts`. `folder` is where
 * relative names of files start.
 */
export const configSchema = (folder: string) =>
  z.strictObject(
    {
      listen: listenSchema(folder).prefault({}),
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
      log: z
        .strictObject(
          {
            level: oneOf(['debug', 'info', 'warn', 'error']).default('info'),
            requests: flag().default(false),
          },
          { error: SECTION },
        )
        .prefault({}),
      drain: z
        .strictObject(
          { delay: durationOrZero().default(5_000), timeout: duration().default(30_000) },
          { error: SECTION },
        )
        .prefault({}),
      redis: redisSchema(folder).exactOptional(),
      audit: auditSchema(folder).exactOptional(),
      clients: z.array(clientSchema(), { error: 'a list of clients' }).default([]),
      jwt: jwtSchema().exactOptional(),
      anonymous: flag().default(false),
      sealed: sealedSchema(folder).exactOptional(),
      credentials: record(credentialSchema(folder)).prefault({}),
      deployments: record(deploymentSchema(folder), 'a mapping of at least one name to its upstream service'),
    },
    { error: SECTION },
  );

/** A configuration that was found right: durations in ms, sizes in bytes, defaults filled in, file names absolute. */
export type Config = z.output<ReturnType<typeof configSchema>>;
