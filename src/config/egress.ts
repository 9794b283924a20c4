import { isIP } from 'node:net';
import { z } from 'zod';
import type { Issue, Path } from './issues.ts';
import { keysAt, textAt } from './tree.ts';
import { fileName, flag, isOrigin, SECTION, text } from './value-schemas.ts';

const ANY_ADDRESS = ['0.0.0.0', '::'];

/** Schema of outgoing connections to an upstream. `folder` is the base of relative file names. */
export const egressSchema = (folder: string) =>
  z.strictObject(
    {
      localAddress: text(
        'an IP address of this host, such as 203.0.113.7',
        (value) => isIP(value) !== 0 && !ANY_ADDRESS.includes(value),
      )
        .exactOptional()
        .describe(
          'The address of this host that connections leave from. If the host does not have it, requests get 502, and `/readyz` and the metric `egress_address_present` say so.',
        ),
      proxy: z
        .strictObject(
          {
            url: text(
              'the scheme, host and port of a proxy, such as http://proxy.internal:3128 or https://proxy.internal:3129',
              // A user and password in the URL have an issue of their own.
              (value) => isOrigin(value.replace(/^(https?:\/\/).*@/, '$1')),
            ).describe(
              'The forward proxy. TLS to the upstream goes through its tunnel and is verified as without a proxy.',
            ),
            credential: text('the name of a credential')
              .exactOptional()
              .describe(
                'The credential for the proxy. It answers Digest, and Basic as far as that is allowed.',
              ),
            allowBasic: flag()
              .default(false)
              .describe('Allows to send the password to an `http://` proxy in Basic, unencrypted.'),
            caFile: fileName(folder)
              .exactOptional()
              .describe('PEM: the authorities of an `https://` proxy, instead of those that Node.js has.'),
          },
          { error: SECTION },
        )
        .exactOptional()
        .describe('A forward proxy, used with CONNECT.'),
    },
    { error: SECTION },
  );

/** Checks `egress` within its deployment. `credentialExists` checks the name of a credential. */
export function* egressFits(
  tree: unknown,
  deployment: string,
  credentialExists: (use: Path, name: string) => Iterable<Issue>,
): Generator<Issue> {
  const path = ['deployments', deployment];
  const proxy = [...path, 'egress', 'proxy'];
  const given = keysAt(tree, proxy);
  const credential = textAt(tree, [...proxy, 'credential']);
  if (credential !== undefined) yield* credentialExists([...proxy, 'credential'], credential);
  const url = textAt(tree, [...proxy, 'url']);
  if (url !== undefined && /^https?:\/\/.*@/.test(url)) {
    yield {
      path: [...proxy, 'url'],
      message: 'contains a user or a password: describe them under credentials, and name that in credential',
    };
  }
  if (url?.startsWith('http://') && given.includes('caFile')) {
    yield {
      path: [...proxy, 'caFile'],
      message: 'needs a url with TLS: write https:// there, or leave caFile out',
    };
  }
  if (given.includes('allowBasic') && !given.includes('credential')) {
    yield {
      path: [...proxy, 'allowBasic'],
      message: 'is for a credential, and there is none: name one, or leave allowBasic out',
    };
  }
  yield* familyFits(tree, path, url ?? textAt(tree, [...path, 'baseUrl']));
}

function* familyFits(tree: unknown, path: Path, url: string | undefined): Generator<Issue> {
  const local = isIP(textAt(tree, [...path, 'egress', 'localAddress']) ?? '');
  const remote = isIP(/^https?:\/\/\[?([^/\]]+?)\]?(?::\d+)?$/.exec(url ?? '')?.[1] ?? '');
  if (local !== 0 && remote !== 0 && local !== remote) {
    yield {
      path: [...path, 'egress', 'localAddress'],
      message: `is an IPv${local} address, from which ${url} cannot be reached: give an IPv${remote} address`,
    };
  }
}
