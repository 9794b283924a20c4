import { z } from 'zod';
import { ORIGIN_FIELDS } from '../http1/fields.ts';
import { isOverride } from '../policy/fields.ts';
import { circuitSchema, healthSchema, outcomesIssues, outcomesSchema, retrySchema } from './availability.ts';
import { type Accepted, type CrossIssue, crossChecked, neededIssues } from './cross-check.ts';
import { limitsSchema } from './limits.ts';
import { operationsIssues, operationsSchema } from './operations.ts';
import {
  addressFamilyIssues,
  egressSchema,
  plaintextTlsIssues,
  severalAddressesIssues,
  upstreamTlsSchema,
} from './upstream-connections.ts';
import {
  duration,
  flag,
  hostName,
  oneOf,
  oneOrMore,
  origin,
  record,
  section,
  size,
  sizeOrOff,
  text,
  whole,
} from './value-schemas.ts';

const SITE_NAMES = {
  allowed: /^[\p{L}\p{N}][^\p{Cc}]{0,127}$/u,
  message: 'is not a name that can be used here: no control characters, 128 at most, a letter or digit first',
};
const ALGORITHMS = ['SHA-512-256', 'SHA-256', 'MD5'] as const;

const match = () =>
  section({
    pathPrefix: text(
      'a path that starts with / and has no query, such as /api/manuscripts/',
      /^\/[\w\-.~%!$&'()*+,;=:@/]*$/,
    )
      .exactOptional()
      .describe('The beginning of the path of requests for this deployment.'),
    host: hostName().exactOptional().describe('The host name of requests for this deployment.'),
  }).refine((rule) => rule.pathPrefix !== undefined || rule.host !== undefined, {
    error: 'has neither pathPrefix nor host: give at least one, or no request comes here',
  });

const rewrite = () =>
  section({
    stripPrefix: text(
      'a path that starts with / and does not end with it, such as /submissions',
      /^(?:\/[\w\-.~%!$&'()*+,;=:@]+)+$/,
    ).describe(
      'Removes this prefix from the path once the deployment is found. It must be the beginning of `match.pathPrefix`; operations and `renewAhead` name paths without it.',
    ),
  });

const digest = () =>
  section({
    algorithms: z
      .array(oneOf(ALGORITHMS), { error: 'a list of algorithms' })
      .nonempty({ error: `a list of at least one of ${ALGORITHMS.join(', ')}` })
      .refine((names) => new Set(names).size === names.length, {
        error: 'names an algorithm twice: name each once',
      })
      .default([...ALGORITHMS])
      .describe(
        'The algorithms with which a challenge may be answered, also that of a forward proxy. The strongest one that is offered is taken.',
      ),
    noncePolicy: oneOf(['auto', 'shared', 'exclusive', 'single-use'])
      .default('auto')
      .describe(
        'How nonces are used: by any number of requests at once (`shared`), by one request at a time (`exclusive`), or by one request only (`single-use`). `auto` learns what the upstream accepts, beginning with `shared`.',
      ),
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
      .default(true)
      .describe(
        'Replaces a nonce before the upstream refuses it, once its lifetime is learned. The request for it is by default a HEAD of the path of the last successful GET.',
      ),
    attemptsWhenRefused: whole(1, 60)
      .default(2)
      .describe(
        'The attempts per minute with a refused credential, for all clients together, so that the upstream does not lock out the address. Deployments that share a credential have as many each, and so have workers and gateways. With 2 or more, no version of a credential counts as refused after one answer, since an upstream that drops its nonces looks the same: finding out that two versions are wrong takes up to two attempts each.',
      ),
  });

const timeouts = () =>
  section({
    connect: duration()
      .default(5000)
      .describe(
        'How long a connection may take, with TLS. Through a proxy, it counts once for the connection to the proxy and its tunnel, and once for the TLS inside.',
      ),
    response: duration()
      .default(60_000)
      .describe(
        'How long the head of the response may take, from the end of the request. Interim responses (1xx) do not put it off.',
      ),
    idle: duration()
      .default(30_000)
      .describe(
        'The longest pause between two parts of a body, of the upstream or the client, and of a client that does not read its response.',
      ),
    total: duration().default(120_000).describe('How long the whole request may take.'),
  });

const body = () =>
  section({
    replayUpTo: size()
      .default(2 ** 20)
      .describe(
        'Request bodies up to this size are kept, so that they can be sent again after a challenge. For a larger one the challenge is requested first.',
      ),
    max: size()
      .default(100 * 2 ** 20)
      .describe('A larger request body is refused, and one whose chunks have more framing than that.'),
    minRate: sizeOrOff()
      .prefault('240B')
      .describe(
        'The fewest bytes per second that a client may send of a body, or read of a response, on average over `timeouts.idle`. Time in which the upstream is waited for does not count. `off`: any rate.',
      ),
  }).refine((limits) => limits.replayUpTo <= limits.max, {
    error: 'is more than body.max: no body of that size is let through; lower it, or raise body.max',
    path: ['replayUpTo'],
  });

const keys = () =>
  section({
    baseUrl: oneOrMore(
      origin(),
      'an origin with nothing after it, such as https://submissions.example.org or https://submissions.example.org:8443; or a list of them',
    )
      .refine((origins) => new Set(origins).size === origins.length, {
        error: 'names an address twice: name each once',
      })
      .describe(
        'Scheme, host and port of the upstream; 443 unless a port is given. Of a list, requests go to the first address that is healthy, and return to an earlier one when it has been healthy for `health.failback`.',
      ),
    match: match().describe(
      'The requests for this deployment. Give at least one of the two; no other deployment may have the same.',
    ),
    rewrite: rewrite()
      .exactOptional()
      .describe(
        'The change of the path between client and upstream. Without it the bytes of the target are unchanged.',
      ),
    credential: text('the name of a credential')
      .exactOptional()
      .describe('The credential of the deployment. Give either this or `sites`.'),
    siteParameter: text('the name of a query parameter, such as site_name', /^[\w\-.~]+$/)
      .exactOptional()
      .describe('The query parameter that names the site. `sites` needs it.'),
    sites: record(
      section({ credential: text('the name of a credential').describe('The credential of the site.') }),
      SITE_NAMES,
    )
      .exactOptional()
      .describe('The sites of the deployment, by name. Every request must then name exactly one of them.'),
    injectSite: flag()
      .default(false)
      .describe(
        'Adds the site at the start of the query of a request that names none, if its client may use one site only.',
      ),
    forwardTrace: flag()
      .default(false)
      .describe(
        'Sends `traceparent`, `tracestate` and `baggage` to the upstream: those of the gateway while it traces, otherwise those of the client, and its other trace fields, such as `b3` and `x-amzn-trace-id`.',
      ),
    passOriginFields: z
      .array(oneOf(ORIGIN_FIELDS), { error: 'a list of field names' })
      .default([])
      .describe(
        'Response fields of the upstream that a browser would keep for the name of the gateway, such as `strict-transport-security`, or a proxy in front of the gateway would obey, such as `x-accel-redirect`, and that reach clients all the same. Otherwise all of these end here.',
      ),
    operations: operationsSchema()
      .prefault({})
      .describe(
        'The known operations, by a name of your choice. Their parameters are checked before the upstream is asked, and metrics count them by name.',
      ),
    unlistedOperations: oneOf(['allow', 'deny'])
      .default('allow')
      .describe('`deny` refuses requests that match no listed operation.'),
    restricted: restrictedSchema()
      .prefault({})
      .describe(
        'What clients may send although a rule restricts them, beyond what no server is known to misread; see [What is judged](policy.md#spelling).',
      ),
    digest: digest().prefault({}).describe('How challenges of the upstream are answered.'),
    tls: upstreamTlsSchema()
      .prefault({})
      .describe('How the upstream is verified, and which certificate it is shown.'),
    egress: egressSchema()
      .prefault({})
      .describe('How connections leave. The upstream sees the local address, or that of the proxy.'),
    connections: whole(1, 65_535)
      .default(64)
      .describe(
        'The most connections of a gateway, with all its workers, to each address of the upstream; each worker has one at least. Further requests wait, those of each client in turn; see [Overload](../operate/overload.md#overload).',
      ),
    timeouts: timeouts().prefault({}).describe('Time limits of a request.'),
    outcomes: outcomesSchema()
      .default([])
      .describe(
        'Named classes of responses, for metrics, logs, the audit log and the console. The first one that matches a response is its outcome. Without any, responses are not looked at.',
      ),
    retry: retrySchema()
      .prefault({})
      .describe('Requests that are sent again because their connection broke.'),
    circuit: circuitSchema()
      .prefault({})
      .describe(
        'Keeps requests away from an address whose exchanges fail: no connection, a broken one, or a timeout. A client is refused only once an exchange of its own has failed. Responses are not failures, whatever their status, unless `statuses` lists it.',
      ),
    health: healthSchema()
      .prefault({})
      .describe('Whether each address serves: by its traffic, and by checks while there is none.'),
    body: body().prefault({}).describe('Limits of bodies.'),
    limits: limitsSchema()
      .exactOptional()
      .describe(
        'What all clients together may send to this deployment. With `redis` the limit holds for all gateways together, otherwise for each gateway with its workers.',
      ),
  });

type Deployment = z.output<ReturnType<typeof keys>>;

/** Schema of one upstream service. */
export const deploymentSchema = () => crossChecked(keys(), deploymentIssues);

function* deploymentIssues(deployment: Accepted<Deployment>): Generator<CrossIssue> {
  yield* baseUrlIssues(deployment);
  yield* credentialIssues(deployment);
  yield* stripPrefixIssues(deployment);
  yield* operationsIssues(deployment);
  if (deployment.outcomes !== undefined) yield* outcomesIssues(deployment.outcomes);
  if (deployment.unlistedOperations === 'deny' && isEmpty(deployment.operations)) {
    yield {
      path: ['unlistedOperations'],
      message: 'denies everything: list the allowed requests under operations, or write allow',
    };
  }
  if (deployment.egress !== undefined) {
    yield* addressFamilyIssues(deployment.egress, deployment.baseUrl ?? []);
    yield* severalAddressesIssues(deployment.egress, deployment.outcomes);
  }
}

function* baseUrlIssues({ baseUrl, tls }: Accepted<Deployment>): Generator<CrossIssue> {
  const isPlain = baseUrl?.some((origin) => origin?.startsWith('http://')) ?? false;
  if (!isPlain || tls === undefined) return;
  if (tls.allowPlaintext === false) {
    yield {
      path: ['baseUrl'],
      message: 'is not encrypted: write https://, or set tls.allowPlaintext to true for a test',
    };
  }
  yield* plaintextTlsIssues(tls);
}

function* credentialIssues(deployment: Accepted<Deployment>): Generator<CrossIssue> {
  if (!('sites' in deployment)) {
    if (!('credential' in deployment)) {
      yield { path: ['credential'], message: 'is missing: give credential, or sites that each name one' };
    }
    if (deployment.injectSite === true) {
      yield { path: ['injectSite'], message: 'has no site to add: describe sites, or leave it out' };
    }
    return;
  }
  if ('credential' in deployment) {
    yield { path: ['sites'], message: 'cannot be combined with credential: keep one of the two' };
  }
  yield* neededIssues(deployment, [
    ['sites', 'siteParameter', 'name the query parameter that holds the site, such as site_name'],
  ]);
  if (isEmpty(deployment.sites)) {
    yield { path: ['sites'], message: 'has no site: name at least one, or give credential instead' };
  }
}

function* stripPrefixIssues({ rewrite: change, match: rule }: Accepted<Deployment>): Generator<CrossIssue> {
  const prefix = change?.stripPrefix;
  if (prefix === undefined || rule === undefined) return;
  const { pathPrefix } = rule;
  const isFirst = pathPrefix === undefined || `${pathPrefix}/`.startsWith(`${prefix}/`);
  if ('pathPrefix' in rule && isFirst) return;
  yield {
    path: ['rewrite', 'stripPrefix'],
    message:
      'is not how match.pathPrefix begins, so no request has it: take the first segments of that prefix',
  };
}

function isEmpty(entries: object | undefined): boolean {
  return entries !== undefined && Object.keys(entries).length === 0;
}

/** Returns the names of the credentials that a deployment uses, without duplicates. */
export function credentialsOf({
  credential,
  sites = {},
}: Pick<Deployment, 'credential' | 'sites'>): string[] {
  const ofSites = Object.values(sites).map((site) => site.credential);
  return credential === undefined ? [...new Set(ofSites)] : [credential];
}

const NAME = /^[A-Za-z\d-]{1,64}$/;

/** Schema of what restricted clients may send to a deployment beyond the usual. */
const restrictedSchema = () =>
  section({
    fields: listOf(
      text(
        'the name of a header field: letters, digits and "-" only, and none that names another method, path or host',
        (name) => NAME.test(name) && !isOverride(name),
      ),
    ).describe(
      'Header fields of requests, such as `SOAPAction`. Of a client with any restriction only these and the [usual ones](policy.md#fields) reach the upstream.',
    ),
    bodyTypes: listOf(
      text('a content type without parameters, such as text/plain', /^[\w!#$&^.+-]+\/[\w!#$&^.+-]+$/),
    ).describe(
      'Content types of bodies from which the upstream reads no parameters, such as `application/json`. Where a rule of the client depends on the query, bodies of only these and the [known ones](policy.md#fields) are let through.',
    ),
    parameterNames: listOf(
      text(
        'the name of a parameter, in which brackets come in pairs, such as page[size]',
        /^\$?[\w\-.~]+(?:\[[\w\-.~]*\])*$/,
      ),
    ).describe(
      'Query parameters with other characters than letters, digits, `-` and `_` in their names. Where a rule depends on the query, other such names are refused.',
    ),
  });

const listOf = (item: z.ZodType<string>) => z.array(item, { error: 'a list of names' }).default([]);
