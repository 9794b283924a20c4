import { isIPv6 } from 'node:net';
import { z } from 'zod';
import { type Accepted, type CrossIssue, crossChecked } from './cross-check.ts';
import { keyFile } from './secret-source.ts';
import { duration, fileName, isHost, NAME, SECTION, text, whole } from './value-schemas.ts';

/** Names that the metrics have for the files and for the stream. */
const TAKEN = ['file', 'redis'];
const SINKS = 'a list of mappings, each with a name and one of syslog';
const KINDS = ['syslog'] as const;

/** TLS towards a receiver. */
const sinkTls = (folder: string) =>
  crossChecked(
    z.strictObject(
      {
        caFile: fileName(folder)
          .exactOptional()
          .describe('PEM: the authorities to trust instead of those that Node.js has.'),
        certFile: fileName(folder)
          .exactOptional()
          .describe('PEM: the certificate that the gateway shows. It needs `keyFile`.'),
        keyFile: keyFile(folder).exactOptional().describe('PEM: the private key of `certFile`.'),
      },
      { error: SECTION },
    ),
    function* (tls): Generator<CrossIssue> {
      for (const [key, other] of [
        ['certFile', 'keyFile'],
        ['keyFile', 'certFile'],
      ] as const) {
        if (key in tls && !(other in tls)) yield { path: [other], message: `is missing: ${key} needs it` };
      }
    },
  );

const syslog = (folder: string) =>
  z.strictObject(
    {
      host: text('a host name or an IP address', (value) => isHost(value) || isIPv6(value)).describe(
        'The receiver. Its certificate must have this name.',
      ),
      port: whole(1, 65_535).default(6514).describe('Its TCP port.'),
      tls: z
        .union([z.literal(false), sinkTls(folder)], { error: `${SECTION}, or false for plain TCP` })
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
        .describe('How long the receiver may take to confirm a delivery. Without it, 10s.'),
      syslog: syslog(folder)
        .exactOptional()
        .describe('A syslog receiver: RFC 5424 over TLS (RFC 5425) or TCP.'),
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

function* kindIssues(sink: Accepted<{ syslog?: object }>): Generator<CrossIssue> {
  const kinds = KINDS.filter((kind) => kind in sink);
  if (kinds.length === 1) return;
  const found = kinds.length === 0 ? 'names no receiver' : 'names receivers of several kinds';
  yield { path: [], message: `${found}: give exactly one of ${KINDS.join(', ')}` };
}
