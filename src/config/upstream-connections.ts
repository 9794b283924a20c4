import { isIP } from 'node:net';
import { z } from 'zod';
import { canonicalAddress, isExposed } from '../base/network.ts';
import type { Outcomes } from './availability.ts';
import { type Accepted, type CrossIssue, crossChecked, neededIssues } from './cross-check.ts';
import { keyFile, source } from './secret-source.ts';
import {
  authoritiesFile,
  duration,
  fileName,
  flag,
  hostName,
  isOrigin,
  oneOf,
  oneOrMore,
  section,
  text,
} from './value-schemas.ts';

const LOCAL_ADDRESS = 'an IP address of this host, such as 203.0.113.7';
const ANY_ADDRESS = ['0.0.0.0', '::'];
const URL_USER = /^(https?:\/\/).*@/;

const proxy = () =>
  section({
    url: text(
      'the scheme, host and port of a proxy, such as http://proxy.internal:3128 or https://proxy.internal:3129',
      // A user and password in the URL have an issue of their own.
      (value) => isOrigin(value.replace(URL_USER, '$1')),
    )
      .refine((value) => !URL_USER.test(value), {
        error: 'contains a user or a password: describe them under credentials, and name that in credential',
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
    caFile: fileName()
      .exactOptional()
      .describe('PEM: the authorities of an `https://` proxy, instead of those that Node.js has.'),
  });

type Proxy = z.output<ReturnType<typeof proxy>>;

/** Schema of outgoing connections to an upstream. */
export const egressSchema = () =>
  section({
    localAddress: oneOrMore(
      text(LOCAL_ADDRESS, (value) => isIP(value) !== 0 && !ANY_ADDRESS.includes(value)),
      `${LOCAL_ADDRESS}; or a list of them`,
    )
      .refine((addresses) => new Set(addresses.map(canonicalAddress)).size === addresses.length, {
        error: 'names an address twice: name each once',
      })
      .exactOptional()
      .describe(
        'The address of this host that connections leave from. If the host does not have it, requests get 502, and `/readyz` and the metric `egress_address_present` say so. Of a list, requests leave from the first address that the host has and that the upstream has not refused (`egress: next` of an outcome); see [Egress](../operate/egress.md#egress).',
      ),
    failback: duration()
      .default(60_000)
      .describe(
        'With several local addresses: how long after a refusal one request may try the address again. Only an idempotent one without a body, or with one that is kept, does.',
      ),
    proxy: crossChecked(proxy(), proxyIssues).exactOptional().describe('A forward proxy, used with CONNECT.'),
  });

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

/** Finds several local addresses where none of them is what the upstream sees, and outcomes that need several. */
export function* severalAddressesIssues(
  egress: Accepted<Egress>,
  outcomes: Accepted<Outcomes> | undefined,
): Generator<CrossIssue> {
  const count = egress.localAddress?.length ?? 0;
  if (count > 1 && 'proxy' in egress) {
    yield {
      path: ['egress', 'localAddress'],
      message: 'is a list, and the upstream sees the address of the proxy: give one address, or leave it out',
    };
  }
  for (const [index, outcome] of (outcomes ?? []).entries()) {
    if (count > 1 || outcome === undefined || !('egress' in outcome)) continue;
    yield {
      path: ['outcomes', index, 'egress'],
      message: 'has no next address: list several under egress.localAddress, or leave it out',
    };
  }
}

/** Finds a local address whose family differs from that of the proxy, or of the upstream without a proxy. */
export function* addressFamilyIssues(
  egress: Accepted<Egress>,
  baseUrl: readonly (string | undefined)[],
): Generator<CrossIssue> {
  const remotes = 'proxy' in egress ? [egress.proxy?.url] : baseUrl;
  for (const address of egress.localAddress ?? []) {
    for (const url of remotes) yield* familyIssue(address, url, egress.localAddress?.length === 1);
  }
}

function* familyIssue(
  address: string | undefined,
  url: string | undefined,
  isOnly: boolean,
): Generator<CrossIssue> {
  const local = isIP(address ?? '');
  const remote = isIP(/^https?:\/\/\[?([^/\]]+?)\]?(?::\d+)?$/.exec(url ?? '')?.[1] ?? '');
  if (local === 0 || remote === 0 || local === remote) return;
  const subject = isOnly ? 'is' : `has ${address},`;
  yield {
    path: ['egress', 'localAddress'],
    message: `${subject} an IPv${local} address, from which ${url} cannot be reached: give an IPv${remote} address`,
  };
}

/** Keys that require TLS. */
const WITH_TLS_ONLY = ['pinSha256', 'serverName', 'certFile', 'keyFile'];

const keys = () =>
  section({
    caFile: authoritiesFile(),
    pinSha256: z
      .array(text('the SHA-256 of a public key in base64, 44 characters', /^[A-Za-z0-9+/]{43}=$/), {
        error: 'a list of public-key pins',
      })
      .nonempty({ error: 'a list of at least one public-key pin' })
      .exactOptional()
      .describe(
        'Public keys, one of which must be in the chain of the upstream: SHA-256 of the SubjectPublicKeyInfo. Name a second one, or a change of key ends all service. `openssl x509 -in cert.pem -pubkey -noout | openssl pkey -pubin -outform der | openssl dgst -sha256 -binary | base64` prints one.',
      ),
    serverName: hostName()
      .exactOptional()
      .describe('The name that the certificate of the upstream is for, if it is not the host of `baseUrl`.'),
    certFile: fileName()
      .exactOptional()
      .describe('PEM: the certificate that the gateway shows to the upstream. SIGHUP reads it again.'),
    keyFile: keyFile()
      .exactOptional()
      .describe(
        'PEM: the private key of that certificate. Others may not read it, unless `readableByOthers` is true.',
      ),
    keyPassphrase: source().exactOptional().describe('The passphrase of an encrypted key.'),
    minVersion: oneOf(['TLSv1.2', 'TLSv1.3'])
      .default('TLSv1.2')
      .describe('The oldest version of TLS that is accepted.'),
    allowPlaintext: flag()
      .default(false)
      .describe(
        'Allows `http://` in `baseUrl`, for tests. Requests and responses are then readable on the network.',
      ),
  });

type Keys = z.output<ReturnType<typeof keys>>;

/** Schema of TLS to an upstream. */
export const upstreamTlsSchema = () => crossChecked(keys(), (tls) => neededIssues(tls, NEEDED));

const NEEDED = [
  ['certFile', 'keyFile', 'a certificate needs its private key; name the file'],
  ['keyFile', 'certFile', 'a private key needs its certificate; name the file'],
  ['keyPassphrase', 'keyFile', 'a passphrase opens a private key; name its file'],
] as const;

/** Finds keys of `tls` that an `http://` upstream cannot have. */
export function* plaintextTlsIssues(tls: Accepted<Keys>): Generator<CrossIssue> {
  for (const key of WITH_TLS_ONLY.filter((name) => name in tls)) {
    yield {
      path: ['tls', key],
      message: 'needs a baseUrl with TLS: write https:// there, or leave it out',
    };
  }
}
