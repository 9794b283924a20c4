import { z } from 'zod';
import { egressSchema } from './egress.ts';
import { limitsSchema } from './limits.ts';
import { operationsSchema } from './operations.ts';
import { upstreamTlsSchema } from './upstream-tls.ts';
import { duration, flag, hostName, oneOf, origin, record, SECTION, size, text, whole } from './values.ts';

const ALGORITHMS = ['SHA-512-256', 'SHA-256', 'MD5'] as const;

const match = () =>
  z
    .strictObject(
      {
        pathPrefix: text(
          'a path that starts with / and has no query, such as /api/manuscripts/',
          /^\/[\w\-.~%!$&'()*+,;=:@/]*$/,
        ).exactOptional(),
        host: hostName().exactOptional(),
      },
      { error: SECTION },
    )
    .refine((rule) => rule.pathPrefix !== undefined || rule.host !== undefined, {
      error: 'has neither pathPrefix nor host: give at least one, or no request comes here',
    });

const rewrite = () =>
  z.strictObject(
    {
      stripPrefix: text(
        'a path that starts with / and does not end with it, such as /submissions',
        /^(?:\/[\w\-.~%!$&'()*+,;=:@]+)+$/,
      ),
    },
    { error: SECTION },
  );

const digest = () =>
  z.strictObject(
    {
      algorithms: z
        .array(oneOf(ALGORITHMS), { error: 'a list of algorithms' })
        .nonempty({ error: `a list of at least one of ${ALGORITHMS.join(', ')}` })
        .refine((names) => new Set(names).size === names.length, {
          error: 'names an algorithm twice: name each once',
        })
        .default([...ALGORITHMS]),
      noncePolicy: oneOf(['auto', 'shared', 'exclusive', 'single-use']).default('auto'),
      renewAhead: z
        .union(
          [
            flag(),
            z.strictObject({
              method: oneOf(['HEAD', 'GET', 'OPTIONS']).default('HEAD'),
              path: text('a path that starts with /', /^\/[\w\-.~%!$&'()*+,;=:@/?]*$/),
            }),
          ],
          { error: 'true, false or { method: HEAD, path: /… }, a request that does nothing' },
        )
        .default(true),
      attemptsWhenRefused: whole(1, 60).default(2),
    },
    { error: SECTION },
  );

const timeouts = () =>
  z.strictObject(
    {
      connect: duration().default(5000),
      response: duration().default(60_000),
      idle: duration().default(30_000),
      total: duration().default(120_000),
    },
    { error: SECTION },
  );

const body = () =>
  z
    .strictObject(
      { replayUpTo: size().default(2 ** 20), max: size().default(100 * 2 ** 20) },
      { error: SECTION },
    )
    .refine((limits) => limits.replayUpTo <= limits.max, {
      error: 'is more than body.max: no body of that size is let through; lower it, or raise body.max',
      path: ['replayUpTo'],
    });

/** One upstream service. `folder` is where relative names of files start. */
export const deploymentSchema = (folder: string) =>
  z.strictObject(
    {
      baseUrl: origin(),
      match: match(),
      rewrite: rewrite().exactOptional(),
      credential: text('the name of a credential').exactOptional(),
      siteParameter: text('the name of a query parameter, such as site_name', /^[\w\-.~]+$/).exactOptional(),
      sites: record(
        z.strictObject({ credential: text('the name of a credential') }, { error: SECTION }),
      ).exactOptional(),
      injectSite: flag().default(false),
      forwardTrace: flag().default(false),
      operations: operationsSchema().prefault({}),
      unlistedOperations: oneOf(['allow', 'deny']).default('allow'),
      digest: digest().prefault({}),
      tls: upstreamTlsSchema(folder).prefault({}),
      egress: egressSchema(folder).prefault({}),
      connections: whole(1, 65_535).default(64),
      timeouts: timeouts().prefault({}),
      body: body().prefault({}),
      limits: limitsSchema().exactOptional(),
    },
    { error: SECTION },
  );

export type Deployment = z.output<ReturnType<typeof deploymentSchema>>;

/** The names of the credentials that a deployment uses, each once. */
export function credentialsOf({
  credential,
  sites = {},
}: Pick<Deployment, 'credential' | 'sites'>): string[] {
  const ofSites = Object.values(sites).map((site) => site.credential);
  return credential === undefined ? [...new Set(ofSites)] : [credential];
}
