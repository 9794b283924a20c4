import { basename, dirname } from 'node:path';
import { z } from 'zod';
import { auditSchema } from './audit.ts';
import { clientSchema, jwtSchema } from './clients.ts';
import { deploymentSchema } from './deployment.ts';
import { listener, listenersSchema } from './listen.ts';
import { fourEyesSchema, oidcSchema, sessionSchema } from './operators.ts';
import { redisSchema } from './redis.ts';
import { credentialSchema, sealedSchema } from './secret-source.ts';
import {
  duration,
  durationOrZero,
  ENTRY_NAMES,
  fileName,
  flag,
  oneOf,
  oneOrMore,
  record,
  section,
  text,
  tokenHash,
  whole,
} from './value-schemas.ts';

/** Where the access log goes. */
const accessTarget = () =>
  z.union([z.literal('stdout'), z.strictObject({ file: fileName() })], {
    error: 'stdout, or { file: NAME }',
  });

const TRACE_URL =
  'an http:// or https:// URL with {traceId} behind its host; {requestId} and {time} are replaced, too, and any other brace is written %7B or %7D';

/** True if the template gives a URL whose scheme, host and port no value can change. */
function isTraceUrl(template: string): boolean {
  const names = Array.from(template.matchAll(/\{([^{}]*)\}/g), ([, name = '']) => name);
  if (!names.includes('traceId') || !names.every((name) => TRACE_VALUES.has(name))) return false;
  const [, authority = ''] = /^https?:\/\/([^/?#\\]+)/.exec(template) ?? [];
  return authority !== '' && !/[{}@]/.test(authority) && URL.canParse(template);
}

const TRACE_VALUES: ReadonlySet<string> = new Set(['traceId', 'requestId', 'time']);

/** More processes than this would not be started by intent. */
const MOST_WORKERS = 256;

const workers = (): z.ZodType<number | 'auto'> => {
  const error = `auto, or a whole number from 1 to ${MOST_WORKERS}`;
  return z.union([whole(1, MOST_WORKERS), z.literal('auto')], { error });
};

const PATTERN =
  'the name of a file, in whose last part * stands for any characters, such as clients.d/*.yaml';

/** Schema of the names of included files. */
export const includeSchema = () =>
  oneOrMore(
    text(PATTERN, (pattern) => basename(pattern) !== '' && !dirname(pattern).includes('*')),
    `${PATTERN}; or a list of them`,
  );

/** Schema of each section by itself. */
const sections = () =>
  section({
    include: includeSchema()
      .exactOptional()
      .describe(
        'Further files with `clients`, `credentials` and `deployments`, and nothing else: a name such as `clients.d/*.yaml`, or a list. `*` stands for any characters in the last part of a name; where it is, `?` and `[ab]` work as in a shell, too. The files are added in the order of their names to what this file has; a name that comes twice is refused. File names in them are relative to the folder of this file, too. At most 1000 files and 16 MiB.',
      ),
    listen: listenersSchema()
      .prefault({})
      .describe(
        'The data plane, to which clients send their requests: one listener, or a list of them, such as a UNIX socket for programs of this machine and TLS for others. `trustedProxies`, `forwardedHeader` and `limits` hold for the whole gateway: in a list, give each of them at one listener. Changes need a restart, but for `hosts`, `trustedProxies` and `forwardedHeader`.',
      ),
    workers: workers()
      .default(1)
      .describe(
        'The number of processes that serve requests: `auto` for one per core, or a number; 1 serves in the process that is started. Processes share the port; connections to upstreams, open client connections and memory for bodies are divided among them. A change needs a restart.',
      ),
    control: section({
      ...listener(8081),
      tokenSha256: tokenHash()
        .exactOptional()
        .describe(
          'The SHA-256 of the token that `/metrics`, `/api`, `/openapi.json` and the console ask for. An address that is not loopback needs it, or `oidc`. Without both, only localhost and loopback addresses are accepted as `Host`. Make the token with `openssl rand -hex 32`: a short one can be guessed from its hash.',
        ),
      traceUrl: text(TRACE_URL, isTraceUrl)
        .exactOptional()
        .describe(
          'The address of a trace in your tracing system, to which the console links a traced request: `https://traces.example.org/trace/{traceId}`. `{requestId}` and `{time}` are replaced, too.',
        ),
      readTokenSha256: tokenHash()
        .exactOptional()
        .describe(
          'The SHA-256 of another token, which opens the same for reading and is refused for every action: for monitoring, and for people who only look. It needs `tokenSha256` or `oidc`.',
        ),
      actions: flag()
        .default(false)
        .describe(
          'Allows actions in the console and under `/api/actions`: reload, promote or roll back a credential, drain, run doctor. Each needs the token or the role `operator`, a confirmation and a record in the audit log. It needs `audit`, and `tokenSha256` or `oidc`.',
        ),
      oidc: oidcSchema()
        .exactOptional()
        .describe(
          'Sign-in with names, by OpenID Connect (authorization code with PKCE). The person is in the audit record of each action, search and export. The token of `tokenSha256`, where it is given, still opens everything, without a name.',
        ),
      session: sessionSchema().prefault({}).describe('The bounds of sessions in the console.'),
      fourEyes: fourEyesSchema()
        .default(false)
        .describe(
          'Actions that need two people: an operator proposes one, and another operator confirms it. `true`: every action but `doctor`, within ten minutes. It needs `oidc` and `actions`. The token acts alone.',
        ),
    })
      .prefault({})
      .describe(
        'The control plane: health, metrics and the console. It speaks plain HTTP. Changes need a restart.',
      ),
    log: section({
      level: oneOf(['debug', 'info', 'warn', 'error'])
        .default('info')
        .describe('The least severe level that is logged.'),
      requests: flag()
        .default(false)
        .describe('Logs a line for each request, with the address of its client, without its query.'),
      access: accessTarget()
        .exactOptional()
        .describe(
          'The access log: a line in the Combined Log Format for each request, without its query, on stdout or in a file. SIGHUP opens the file again. Lines that cannot be written in time are left out; the log says how many, and access_log_lost_lines_total counts them. Without it there is none.',
        ),
      flightRecords: fileName()
        .exactOptional()
        .describe(
          'A folder for flight records: what happened to nonces and credentials in the last minutes, without secrets and addresses of clients. A process writes one when the upstream refuses a credential that it accepted, and after an internal error, once a minute at most; the latest 20 stay. Without it `GET /api/flight-record` shows them.',
        ),
    })
      .prefault({})
      .describe('The log on stderr: JSON lines, or readable lines on a terminal.'),
    drain: section({
      delay: durationOrZero()
        .default(5_000)
        .describe(
          'How long the gateway still accepts connections after SIGTERM while `/readyz` responds with 503. Set it longer than the health check of the load balancer takes.',
        ),
      timeout: duration()
        .default(30_000)
        .describe(
          'How long requests may take to finish after the delay. Connections that are still open then are closed.',
        ),
    })
      .prefault({})
      .describe(
        'How the process ends on SIGTERM. A second signal, or Ctrl-C, skips the delay. An orchestrator must wait 30 s longer than delay and timeout together before it sends SIGKILL.',
      ),
    readiness: oneOf(['gateway', 'any-upstream', 'all-upstreams'])
      .default('gateway')
      .describe(
        'When `/readyz` responds with 200: `gateway`, while this process can serve, which is right behind a load balancer, since other replicas reach the same upstreams; `any-upstream` or `all-upstreams`, only while one or every deployment has an address that is not failing, which is right where replicas use different networks.',
      ),
    redis: redisSchema()
      .exactOptional()
      .describe(
        'The Redis in which gateways share challenges, limits and what they learned about upstreams. Without it each gateway keeps its own, with its workers. Give exactly one of `url`, `sentinels` and `cluster`. Changes need a restart.',
      ),
    audit: auditSchema()
      .exactOptional()
      .describe(
        'The audit log: which client sent which request, in sealed files. Without it nothing is recorded. Changes need a restart, but for `parameters` and `pseudonyms.fields`.',
      ),
    clients: z
      .array(clientSchema(), { error: 'a list of clients' })
      .default([])
      .describe(
        'The clients that may send requests. A request belongs to the first client in the list that it matches; a client is refused if all its requests match one that stands before it.',
      ),
    jwt: jwtSchema()
      .exactOptional()
      .describe('The issuers of the Bearer tokens by which clients can be identified.'),
    anonymous: flag()
      .default(false)
      .describe(
        'Serves requests of everyone who reaches the data plane. It is refused unless each `address` of `listen` is loopback.',
      ),
    sealed: sealedSchema()
      .exactOptional()
      .describe('One file that holds many secrets, encrypted with age. `credential seal NAME` writes it.'),
    credentials: record(credentialSchema(), ENTRY_NAMES)
      .prefault({})
      .describe(
        'User names and passwords for upstream services and forward proxies, by a name of your choice.',
      ),
    deployments: record(
      deploymentSchema(),
      ENTRY_NAMES,
      'a mapping of at least one name to its upstream service',
    ).describe(
      'The upstream services, by a name of your choice. A request goes to the deployment whose host or path prefix it matches.',
    ),
  });

let built: ReturnType<typeof sections> | undefined;

/** Returns the one schema of all sections: to build it takes longer than to parse most configurations. */
export function sectionsSchema(): ReturnType<typeof sections> {
  built ??= sections();
  return built;
}

/** A valid configuration: durations in ms, sizes in bytes, defaults filled in, absolute file names. */
export type Config = z.output<ReturnType<typeof sections>>;
