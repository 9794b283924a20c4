import { isIPv6 } from 'node:net';
import { z } from 'zod';
import { type Accepted, type CrossIssue, crossChecked, neededIssues, repeatedIssues } from './cross-check.ts';
import { keyFile, source } from './secret-source.ts';
import {
  authoritiesFile,
  duration,
  fileName,
  flag,
  isHost,
  NAME,
  NAME_FORM,
  oneOf,
  origin,
  period,
  record,
  SECTION,
  section,
  size,
  text,
  whole,
} from './value-schemas.ts';

const PARAMETERS = 'a list of names of query parameters';
const FIELDS = 'a list of address and parameters.NAME, such as parameters.ids, with one at least';

/** Schema of the audit log. */
export const auditSchema = () =>
  crossChecked(auditSection(), function* (audit): Generator<CrossIssue> {
    yield* headIssues(audit);
    yield* sinkIssues(audit.sinks);
  });

const auditSection = () =>
  section({
    directory: fileName().describe(
      'The directory of the log. Each replica has a folder in it, for its own user only.',
    ),
    replica: text(NAME_FORM, NAME)
      .exactOptional()
      .describe(
        'The folder that this process writes to; its workers write to `REPLICA@1`, `REPLICA@2` and so on. Without it, the host name, or `gateway` in a container whose host name is its id: the next container continues its log. Two gateways cannot share a folder, and two of one name cannot share a stream in Redis: one of them sends nothing there. Give each a name of its own.',
      ),
    durability: oneOf(['write', 'fsync', 'async'])
      .default('write')
      .describe(
        'When a record counts as safe, so that its response may leave: given to the system (`write`), on disk (`fsync`), or not awaited (`async`).',
      ),
    onFailure: oneOf(['refuse', 'serve'])
      .default('refuse')
      .describe(
        'What happens while the log cannot be written: `refuse` responds with 503 `audit-unavailable` until it can; `serve` goes on without records and counts them.',
      ),
    keyFile: fileName().describe(
      'A file with the key of the seals: 256 bits in hex. A holder of the key can forge the log, so keep a copy away from the log.',
    ),
    signingKeyFile: fileName()
      .exactOptional()
      .describe(
        'A file with a private key (Ed25519, PEM) that signs heads of the log, at least once a second while records come. Whoever has the public key can check the log and proofs of records, and cannot forge them. `audit key new` makes both.',
      ),
    witness: witness()
      .exactOptional()
      .describe(
        'A witness on another machine, which cosigns signed heads that continue the last one. It needs `signingKeyFile`. Requests do not wait for it.',
      ),
    timestamps: timestamps()
      .exactOptional()
      .describe(
        'A time-stamping authority (RFC 3161), which states when the newest signed head was there. It needs `signingKeyFile`. Requests do not wait for it.',
      ),
    parameters: z
      .array(text('the name of a query parameter'), { error: PARAMETERS })
      .default([])
      .describe(
        'The query parameters that are recorded by value. Every other one is recorded by its name only.',
      ),
    pseudonyms: section({
      keysDirectory: fileName().describe(
        'The directory of the keys, outside of `audit.directory`. Each process makes its keys in a folder in it, for its own user only. Keep it out of copies of the log.',
      ),
      fields: z
        .array(text('address, or parameters.NAME', /^(?:address|parameters\..{1,64})$/), {
          error: FIELDS,
        })
        .min(1, { error: FIELDS })
        .default(['address'])
        .describe(
          'What is encrypted: `address`, the address of a client, and `parameters.NAME`, the value of a parameter that `audit.parameters` names.',
        ),
      per: oneOf(['month', 'client', 'address'])
        .default('month')
        .describe(
          'What has a key of its own, and can be forgotten alone: each `month` (UTC), each `client`, or each `address`. Values of unknown clients are always under the key of the month.',
        ),
    })
      .exactOptional()
      .describe(
        'Values that name persons are recorded encrypted. `audit forget` destroys a key, and with it these values, while the log stays verifiable.',
      ),
    segment: section({
      size: size().prefault('256MiB').describe('A segment is closed, and then compressed, at this size.'),
      age: period().prefault('1d').describe('A segment is closed, and then compressed, at this age.'),
      keep: period().prefault('365d').describe('A segment is removed at this age.'),
      keepUnsent: size()
        .prefault('10GiB')
        .describe(
          'A segment that a sink has not confirmed is kept beyond `keep`, until a folder has more than this.',
        ),
    })
      .prefault({})
      .describe('The files of the log.'),
    sinks: auditSinksSchema()
      .exactOptional()
      .describe(
        'Receivers that get every record from the files, at least once. A new one gets the whole log that is there.',
      ),
  });

function* headIssues(
  audit: Accepted<{ witness?: object; timestamps?: object; signingKeyFile?: string }>,
): Generator<CrossIssue> {
  if ('signingKeyFile' in audit) return;
  const path = ['signingKeyFile'];
  if ('witness' in audit) yield { path, message: 'is missing: a witness cosigns signed heads' };
  else if ('timestamps' in audit) yield { path, message: 'is missing: time stamps are of signed heads' };
}

const VERIFIER_KEY =
  'a key as NAME+ID+BASE64, or the text of FILE.pub of audit key new (-----BEGIN PUBLIC KEY-----)';

const witness = () =>
  section({
    url: text(
      'the http:// or https:// address of a witness, such as https://witness.example.org:8090',
      isEndpoint,
    ).describe('The witness. `/add-checkpoint` is added.'),
    publicKey: text(VERIFIER_KEY, (value) =>
      /^(?:[^\s+]+\+[0-9a-f]{8}\+[A-Za-z0-9+/]+={0,2}|-----BEGIN PUBLIC KEY-----[\s\S]+)\n?$/.test(value),
    ).describe(
      'The public key of the witness, as its log has it (`NAME+ID+BASE64`), or in PEM. Other cosignatures are ignored.',
    ),
    every: duration().default(10_000).describe('The least time between two heads that it gets.'),
    timeout: duration().default(10_000).describe('How long it may take to cosign a head.'),
    tls: receiverTls().prefault({}).describe('TLS 1.2 or later.'),
  });

const timestamps = () =>
  section({
    url: text(
      'the http:// or https:// address of a time-stamping authority, such as https://tsa.example.org/tsr',
      isEndpoint,
    ).describe('The authority, which gets requests as RFC 3161, section 3.4 has them.'),
    caFile: fileName().describe(
      'PEM: the certificates that its time stamps must lead to. Its own must be for time stamps alone.',
    ),
    policy: text(
      'an object identifier, such as 1.3.6.1.4.1.13762.3',
      /^[0-2](?:\.(?:0|[1-9]\d{0,17})){1,30}$/,
    )
      .exactOptional()
      .describe('The policy that a time stamp must have. Without it, any.'),
    every: period().prefault('1d').describe('The least time between two time stamps.'),
    timeout: duration().default(10_000).describe('How long it may take to make a time stamp.'),
    tls: section({
      caFile: authoritiesFile(),
    })
      .prefault({})
      .describe('TLS 1.2 or later, to the authority.'),
  });

/** Names that the metrics have for the files, for the witness, and for time stamps. */
const TAKEN = ['file', 'witness', 'timestamps'];
const KINDS = ['redis', 'syslog', 's3', 'otlp'] as const;
const SINKS = `a list of mappings, each with a name and one of ${KINDS.join(', ')}`;

const redis = section({
  maxLength: whole(1000, 1_000_000_000)
    .default(1_000_000)
    .describe('The newest records that the stream keeps; a seal counts as one.'),
});

const syslog = () =>
  section({
    host: text('a host name or an IP address', (value) => isHost(value) || isIPv6(value)).describe(
      'The receiver. Its certificate must have this name.',
    ),
    port: whole(1, 65_535).default(6514).describe('Its TCP port.'),
    tls: z
      .union([z.literal(false), receiverTls()], { error: `${SECTION}, or false for plain TCP` })
      .prefault({})
      .describe('TLS 1.2 or later; `false` sends everything in plain text.'),
    facility: whole(0, 23).default(13).describe('The facility of every message; 13 is "log audit".'),
    enterprise: whole(1, 4_294_967_295)
      .default(32_473)
      .describe(
        'The private enterprise number in the name of the structured data, `record@NUMBER`. The default is for examples: give that of your organisation.',
      ),
  });

const s3 = () =>
  section({
    bucket: text('the name of a bucket', /^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$/).describe(
      'The bucket. It has to exist, with object lock.',
    ),
    region: text('the name of a region', /^[a-z0-9-]{1,32}$/).describe(
      'The region of the bucket, such as eu-central-1.',
    ),
    endpoint: origin()
      .exactOptional()
      .describe('The origin of the service. Without it, that of AWS in the region.'),
    pathStyle: flag()
      .default(false)
      .describe('Names the bucket in the path, not in the host name, as many other services need it.'),
    prefix: text(
      'letters, digits, "-", "_", "." and "/" only, with a "/" at its end',
      /^[\w.-][\w./-]{0,254}\/$/,
    )
      .exactOptional()
      .describe('Stands before every key, such as `audit/`.'),
    accessKeyId: source().describe(
      'The access key. It needs `s3:PutObject`, `s3:PutObjectRetention`, `s3:GetObject` and `s3:GetObjectRetention`.',
    ),
    secretAccessKey: source().describe('The secret of the access key.'),
    sessionToken: source().exactOptional().describe('The session token, if the access key has one.'),
    lock: z
      .union(
        [
          z.literal(false),
          section({
            mode: oneOf(['governance', 'compliance']).describe(
              'Who can remove an object before its time: those with a permission, or no one.',
            ),
            keep: period().describe('How long after the upload an object cannot be changed or removed.'),
          }),
        ],
        { error: `${SECTION}, or false for objects without a lock` },
      )
      .describe('The object lock of each object. `false` locks none.'),
    tls: receiverTls().prefault({}).describe('TLS 1.2 or later.'),
  });

/** Schema of the sinks of the audit log. */
const auditSinksSchema = () => {
  const sink = section({
    name: text(
      `${NAME_FORM}; not file, witness or timestamps`,
      (value) => NAME.test(value) && !TAKEN.includes(value),
    ).describe(
      'Names the sink in metrics and logs, and the file with its position. Another name sends the whole log again.',
    ),
    timeout: duration()
      .exactOptional()
      .describe('How long the receiver may take to confirm a delivery. Without it, 10s, and 5m for s3.'),
    redis: redis
      .exactOptional()
      .describe(
        'One stream for the logs of all replicas, in the Redis of `redis`. `audit export --follow` collects it.',
      ),
    syslog: syslog().exactOptional().describe('A syslog receiver: RFC 5424 over TLS (RFC 5425) or TCP.'),
    s3: s3().exactOptional().describe('A bucket of S3, or of a service like it, that gets closed segments.'),
    otlp: otlp().exactOptional().describe('A receiver of OpenTelemetry logs: OTLP over HTTP, in JSON.'),
  });
  return z.array(crossChecked(sink, kindIssues), { error: SINKS });
};

function* sinkIssues(
  sinks: Accepted<readonly { name: string; redis?: object }[]> = [],
): Generator<CrossIssue> {
  yield* repeatedIssues(sinks, 'name', ['sinks'], 'is that of another sink, too: give each its own');
  const [, second] = sinks.flatMap((sink, index) => (sink !== undefined && 'redis' in sink ? [index] : []));
  if (second === undefined) return;
  const message = 'is a second one: there is one stream, of which this would send every record again';
  yield { path: ['sinks', second, 'redis'], message };
}

function* kindIssues(
  sink: Accepted<{ redis?: object; syslog?: object; s3?: object; otlp?: object }>,
): Generator<CrossIssue> {
  const kinds = KINDS.filter((kind) => kind in sink);
  if (kinds.length === 1) return;
  const found = kinds.length === 0 ? 'names no receiver' : 'names receivers of several kinds';
  yield { path: [], message: `${found}: give exactly one of ${KINDS.join(', ')}` };
}

/** TLS towards a receiver. */
const receiverTls = () =>
  crossChecked(
    section({
      caFile: authoritiesFile(),
      certFile: fileName()
        .exactOptional()
        .describe('PEM: the certificate that the gateway shows. It needs `keyFile`.'),
      keyFile: keyFile().exactOptional().describe('PEM: the private key of `certFile`.'),
    }),
    (tls) =>
      neededIssues(tls, [
        ['certFile', 'keyFile', 'certFile needs it'],
        ['keyFile', 'certFile', 'keyFile needs it'],
      ]),
  );

/** The fields that the gateway sets itself, or that belong to the connection. */
const FIELD_NAMES = {
  allowed:
    /^(?!(?:content-[^:]*|host|connection|keep-alive|transfer-encoding|te|trailer|upgrade|expect)$)[!#$%&'*+.^_`|~\w-]+$/i,
  message: 'is not the name of a header field that can be set here',
};

/** A receiver of OTLP over HTTP. */
const otlp = () =>
  section({
    endpoint: text(
      'the http:// or https:// address of OTLP logs, such as https://collector.internal:4318/v1/logs',
      isEndpoint,
    ).describe('The receiver, with the path, which is `/v1/logs` at most of them.'),
    headers: record(source(), FIELD_NAMES)
      .prefault({})
      .describe('Header fields of each request by name, such as `authorization`.'),
    tls: receiverTls().prefault({}).describe('TLS 1.2 or later.'),
  });

function isEndpoint(value: string): boolean {
  if (!URL.canParse(value)) return false;
  const { protocol, username, password, hash } = new URL(value);
  return ['http:', 'https:'].includes(protocol) && username + password + hash === '';
}
