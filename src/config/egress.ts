import { isIP } from 'node:net';
import { z } from 'zod';
import { isExposed } from '../base/network.ts';
import { type Accepted, type CrossIssue, crossChecked } from './cross-check.ts';
import { fileName, flag, isOrigin, SECTION, text } from './value-schemas.ts';

const ANY_ADDRESS = ['0.0.0.0', '::'];
const URL_USER = /^(https?:\/\/).*@/;

const proxy = (folder: string) =>
  z.strictObject(
    {
      url: text(
        'the scheme, host and port of a proxy, such as http://proxy.internal:3128 or https://proxy.internal:3129',
        // A user and password in the URL have an issue of their own.
        (value) => isOrigin(value.replace(URL_USER, '$1')),
      )
        .refine((value) => !URL_USER.test(value), {
          error:
            'contains a user or a password: describe them under credentials, and name that in credential',
        })
        .describe(
          'The forward proxy. TLS to the upstream goes through its tunnel and is verified as without a proxy.',
        ),
      credential: text('the name of a credential')
        .exactOptional()
        .describe(
          'The credential for the proxy. It answers Digest with qop and an algorithm of `digest.algorithms`, and Basic only if the proxy does not offer Digest. An `http://` proxy needs `allowPlaintext`, unless it is on a loopback address.',
        ),
      allowPlaintext: flag()
        .default(false)
        .describe(
          'Allows a credential for an `http://` proxy on another machine. Others on the network can then read the password in Basic, and guess it from Digest. A proxy on localhost or a loopback address does not need it.',
        ),
      caFile: fileName(folder)
        .exactOptional()
        .describe('PEM: the authorities of an `https://` proxy, instead of those that Node.js has.'),
    },
    { error: SECTION },
  );

type Proxy = z.output<ReturnType<typeof proxy>>;

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
      proxy: crossChecked(proxy(folder), proxyIssues)
        .exactOptional()
        .describe('A forward proxy, used with CONNECT.'),
    },
    { error: SECTION },
  );

type Egress = z.output<ReturnType<typeof egressSchema>>;

function* proxyIssues(proxy: Accepted<Proxy>): Generator<CrossIssue> {
  if ('credential' in proxy && proxy.allowPlaintext === false && proxy.url && isExposed(new URL(proxy.url))) {
    yield {
      path: ['url'],
      message:
        'is not encrypted, which exposes the credential: write https://, or set allowPlaintext to true',
    };
  }
  if (proxy.url?.startsWith('http://') && 'caFile' in proxy) {
    yield { path: ['caFile'], message: 'needs a url with TLS: write https:// there, or leave caFile out' };
  }
  if (proxy.allowPlaintext === true && !('credential' in proxy)) {
    yield {
      path: ['allowPlaintext'],
      message: 'is for a credential, and there is none: name one, or leave allowPlaintext out',
    };
  }
}

/** Finds a local address whose family differs from that of the proxy, or of the upstream without a proxy. */
export function* addressFamilyIssues(
  egress: Accepted<Egress>,
  baseUrl: readonly (string | undefined)[],
): Generator<CrossIssue> {
  const local = isIP(egress.localAddress ?? '');
  for (const url of 'proxy' in egress ? [egress.proxy?.url] : baseUrl) {
    const remote = isIP(/^https?:\/\/\[?([^/\]]+?)\]?(?::\d+)?$/.exec(url ?? '')?.[1] ?? '');
    if (local === 0 || remote === 0 || local === remote) continue;
    yield {
      path: ['egress', 'localAddress'],
      message: `is an IPv${local} address, from which ${url} cannot be reached: give an IPv${remote} address`,
    };
  }
}
