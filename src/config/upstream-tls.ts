import { z } from 'zod';
import { type Accepted, type CrossIssue, crossChecked } from './cross-check.ts';
import { keyFile, source } from './secret-source.ts';
import { fileName, flag, hostName, oneOf, SECTION, text } from './value-schemas.ts';

/** Keys that require TLS. */
const WITH_TLS_ONLY = ['pinSha256', 'serverName', 'certFile', 'keyFile'];

const keys = (folder: string) =>
  z.strictObject(
    {
      caFile: fileName(folder)
        .exactOptional()
        .describe('PEM: the authorities to trust instead of those that Node.js has.'),
      pinSha256: z
        .array(text('the SHA-256 of a public key in base64, 44 characters', /^[A-Za-z0-9+/]{43}=$/), {
          error: 'a list of public-key pins',
        })
        .nonempty({ error: 'a list of at least one public-key pin' })
        .exactOptional()
        .describe(
          'Public keys, one of which must be in the chain of the upstream: SHA-256 of the SubjectPublicKeyInfo. Name a second one, or a change of key ends all service.',
        ),
      serverName: hostName()
        .exactOptional()
        .describe(
          'The name that the certificate of the upstream is for, if it is not the host of `baseUrl`.',
        ),
      certFile: fileName(folder)
        .exactOptional()
        .describe('PEM: the certificate that the gateway shows to the upstream. SIGHUP reads it again.'),
      keyFile: keyFile(folder)
        .exactOptional()
        .describe(
          'PEM: the private key of that certificate. Others may not read it, unless `readableByOthers` is true.',
        ),
      keyPassphrase: source(folder).exactOptional().describe('The passphrase of an encrypted key.'),
      minVersion: oneOf(['TLSv1.2', 'TLSv1.3'])
        .default('TLSv1.2')
        .describe('The oldest version of TLS that is accepted.'),
      allowPlaintext: flag()
        .default(false)
        .describe(
          'Allows `http://` in `baseUrl`, for tests. Requests and responses are then readable on the network.',
        ),
    },
    { error: SECTION },
  );

type Keys = z.output<ReturnType<typeof keys>>;

/** Schema of TLS to an upstream. `folder` is the base of relative file names. */
export const upstreamTlsSchema = (folder: string) => crossChecked(keys(folder), certificateIssues);

function* certificateIssues(tls: Accepted<Keys>): Generator<CrossIssue> {
  for (const [key, needed, why] of [
    ['certFile', 'keyFile', 'a certificate needs its private key; name the file'],
    ['keyFile', 'certFile', 'a private key needs its certificate; name the file'],
    ['keyPassphrase', 'keyFile', 'a passphrase opens a private key; name its file'],
  ] as const) {
    if (key in tls && !(needed in tls)) yield { path: [needed], message: `is missing: ${why}` };
  }
}

/** Finds keys of `tls` that an `http://` upstream cannot have. */
export function* plaintextTlsIssues(tls: Accepted<Keys>): Generator<CrossIssue> {
  for (const key of WITH_TLS_ONLY.filter((name) => name in tls)) {
    yield {
      path: ['tls', key],
      message: 'needs a baseUrl with TLS: write https:// there, or leave it out',
    };
  }
}
