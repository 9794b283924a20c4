import { isIPv6 } from 'node:net';
import { z } from 'zod';
import { type Accepted, type CrossIssue, crossChecked } from './cross-check.ts';
import { otlpReceiver, receiverTls } from './receivers.ts';
import { source } from './secret-source.ts';
import {
  duration,
  flag,
  isHost,
  NAME,
  oneOf,
  origin,
  period,
  SECTION,
  text,
  whole,
} from './value-schemas.ts';

/** Names that the metrics have for the files and for the stream. */
const TAKEN = ['file', 'redis'];
const SINKS = 'a list of mappings, each with a name and one of syslog, s3, otlp';
const KINDS = ['syslog', 's3', 'otlp'] as const;

const syslog = (folder: string) =>
  z.strictObject(
    {
      host: text('a host name or an IP address', (value) => isHost(value) || isIPv6(value)).describe(
        'The receiver. Its certificate must have this name.',
      ),
      port: whole(1, 65_535).default(6514).describe('Its TCP port.'),
      tls: z
        .union([z.literal(false), receiverTls(folder)], { error: `${SECTION}, or false for plain TCP` })
        .prefault({})
        .describe('TLS 1.2 or later; `false` sends everything in plain text.'),
      facility: whole(0, 23).default(13).describe('The facility of every message; 13 is "log audit".'),
      enterprise: whole(1, 4_294_967_295)
        .default(32_473)
        .describe(
          'The private enterprise number in the name of the structured data, `record@NUMBER`. The default is for examples: give that of your organisation.',
        ),
    },
    { error: SECTION },
  );

const s3 = (folder: string) =>
  z.strictObject(
    {
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
      accessKeyId: source(folder).describe(
        'The access key. It needs `s3:PutObject`, `s3:PutObjectRetention`, `s3:GetObject` and `s3:GetObjectRetention`.',
      ),
      secretAccessKey: source(folder).describe('The secret of the access key.'),
      sessionToken: source(folder).exactOptional().describe('The session token, if the access key has one.'),
      lock: z
        .union(
          [
            z.literal(false),
            z.strictObject(
              {
                mode: oneOf(['governance', 'compliance']).describe(
                  'Who can remove an object before its time: those with a permission, or nobody.',
                ),
                keep: period().describe('How long after the upload an object cannot be changed or removed.'),
              },
              { error: SECTION },
            ),
          ],
          { error: `${SECTION}, or false for objects without a lock` },
        )
        .describe('The object lock of each object. `false` locks none.'),
      tls: receiverTls(folder).prefault({}).describe('TLS 1.2 or later.'),
    },
    { error: SECTION },
  );

const otlp = (folder: string) => z.strictObject(otlpReceiver(folder), { error: SECTION });

/** Schema of the sinks of the audit log. `folder` is the base of relative file names. */
export const auditSinksSchema = (folder: string) => {
  const sink = z.strictObject(
    {
      name: text(
        'letters, digits, "-", "_" and "." only, 64 at most, a letter or digit first; not file or redis',
        (value) => NAME.test(value) && !TAKEN.includes(value),
      ).describe(
        'Names the sink in metrics and logs, and the file with its position. Another name sends the whole log again.',
      ),
      timeout: duration()
        .exactOptional()
        .describe('How long the receiver may take to confirm a delivery. Without it, 10s, and 5m for s3.'),
      syslog: syslog(folder)
        .exactOptional()
        .describe('A syslog receiver: RFC 5424 over TLS (RFC 5425) or TCP.'),
      s3: s3(folder)
        .exactOptional()
        .describe('A bucket of S3, or of a service like it, that gets closed segments.'),
      otlp: otlp(folder)
        .exactOptional()
        .describe('A receiver of OpenTelemetry logs: OTLP over HTTP, in JSON.'),
    },
    { error: SECTION },
  );
  return z.array(crossChecked(sink, kindIssues), { error: SINKS }).superRefine((sinks, context) => {
    for (const [index, { name }] of sinks.entries()) {
      if (sinks.findIndex((each) => each.name === name) === index) continue;
      context.addIssue({
        code: 'custom',
        path: [index, 'name'],
        message: 'is that of another sink, too: give each its own',
      });
    }
  });
};

function* kindIssues(sink: Accepted<{ syslog?: object; s3?: object; otlp?: object }>): Generator<CrossIssue> {
  const kinds = KINDS.filter((kind) => kind in sink);
  if (kinds.length === 1) return;
  const found = kinds.length === 0 ? 'names no receiver' : 'names receivers of several kinds';
  yield { path: [], message: `${found}: give exactly one of ${KINDS.join(', ')}` };
}
