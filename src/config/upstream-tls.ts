import { z } from 'zod';
import type { Issue } from './issues.ts';
import { keyFile, source } from './secret-source.ts';
import { keysAt, textAt } from './tree.ts';
import { fileName, flag, hostName, oneOf, SECTION, text } from './value-schemas.ts';

/** Keys that require TLS. */
const WITH_TLS_ONLY = ['pinSha256', 'serverName', 'certFile', 'keyFile'];

/** Schema of TLS to an upstream. `folder` is the base of relative file names. */
export const upstreamTlsSchema = (folder: string) =>
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

/** Checks `tls` within its deployment. */
export function* upstreamTlsFits(tree: unknown, deployment: string): Generator<Issue> {
  const path = ['deployments', deployment, 'tls'];
  const given = keysAt(tree, path);
  const needs: [string, string, string][] = [
    ['certFile', 'keyFile', 'a certificate needs its private key; name the file'],
    ['keyFile', 'certFile', 'a private key needs its certificate; name the file'],
    ['keyPassphrase', 'keyFile', 'a passphrase opens a private key; name its file'],
  ];
  for (const [key, needed, why] of needs) {
    if (given.includes(key) && !given.includes(needed)) {
      yield { path: [...path, needed], message: `is missing: ${why}` };
    }
  }
  if (textAt(tree, ['deployments', deployment, 'baseUrl'])?.startsWith('http://') !== true) return;
  for (const key of WITH_TLS_ONLY.filter((name) => given.includes(name))) {
    yield {
      path: [...path, key],
      message: 'needs a baseUrl with TLS: write https:// there, or leave it out',
    };
  }
}
