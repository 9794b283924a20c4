import { z } from 'zod';
import { type CrossIssue, crossChecked } from './cross-check.ts';
import { keyFile, source } from './secret-source.ts';
import { fileName, record, SECTION, text } from './value-schemas.ts';

/** TLS towards a receiver. */
export const receiverTls = (folder: string) =>
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

/** The fields that the gateway sets itself, or that belong to the connection. */
const FIELD_NAMES = {
  allowed:
    /^(?!(?:content-[^:]*|host|connection|keep-alive|transfer-encoding|te|trailer|upgrade|expect)$)[!#$%&'*+.^_`|~\w-]+$/i,
  message: 'is not the name of a header field that can be set here',
};

/** The keys of a receiver of OTLP over HTTP. */
export const otlpReceiver = (folder: string) => ({
  endpoint: text(
    'the http:// or https:// address of OTLP logs, such as https://collector.internal:4318/v1/logs',
    isEndpoint,
  ).describe('The receiver, with the path, which is `/v1/logs` at most of them.'),
  headers: record(source(folder), FIELD_NAMES)
    .prefault({})
    .describe('Header fields of each request by name, such as `authorization`.'),
  tls: receiverTls(folder).prefault({}).describe('TLS 1.2 or later.'),
});

function isEndpoint(value: string): boolean {
  if (!URL.canParse(value)) return false;
  const { protocol, username, password, hash } = new URL(value);
  return ['http:', 'https:'].includes(protocol) && username + password + hash === '';
}
