import { describe, test } from '@jest/globals';
import { type Case, expectIssues } from './issue-lines.ts';
import { withDeployment, withMore } from './texts.ts';

const PIN = `"${'A'.repeat(43)}="`;
const PROXY_URL =
  'must be the scheme, host and port of a proxy, such as http://proxy.internal:3128 or https://proxy.internal:3129';

const egress: Case[] = [
  ...['10.0.0.1', '"2001:db8::1"', '"fe80::1%eth0"'].map(
    (address): Case => [`from ${address}`, withMore(`egress: { localAddress: ${address} }`), []],
  ),
  ...['eth0', 'localhost', '0.0.0.0', '"::"', '10.0.0.0/8'].map(
    (address): Case => [
      `from ${address}`,
      withMore(`egress: { localAddress: ${address} }`),
      [
        '7:29 deployments.d.egress.localAddress: must be an IP address of this host, such as 203.0.113.7; or a list of them',
      ],
    ],
  ),
  [
    'from an address of another family than the upstream',
    withDeployment(
      'baseUrl: "https://[2001:db8::1]:8443"',
      'match: { host: a }',
      'credential: a',
      'egress: { localAddress: 10.0.0.1 }',
    ),
    [
      '7:29 deployments.d.egress.localAddress: is an IPv4 address, from which https://[2001:db8::1]:8443 cannot be reached: give an IPv6 address',
    ],
  ],
  ['from several addresses', withMore('egress: { localAddress: [10.0.0.1, 10.0.0.2, "::1"] }'), []],
  [
    'from several addresses, one of them twice',
    withMore('egress: { localAddress: ["2001:db8::1", "2001:DB8:0::1"] }'),
    ['7:29 deployments.d.egress.localAddress: names an address twice: name each once'],
  ],
  [
    'from several addresses, one of them of another family than the upstream',
    withDeployment(
      'baseUrl: "https://[2001:db8::1]:8443"',
      'match: { host: a }',
      'credential: a',
      'egress: { localAddress: ["2001:db8::7", 10.0.0.1] }',
    ),
    [
      '7:29 deployments.d.egress.localAddress: has 10.0.0.1, an IPv4 address, from which https://[2001:db8::1]:8443 cannot be reached: give an IPv6 address',
    ],
  ],
  [
    'from several addresses, which the upstream does not see',
    withMore('egress: { localAddress: [10.0.0.1, 10.0.0.2], proxy: { url: "http://proxy:3128" } }'),
    [
      '7:29 deployments.d.egress.localAddress: is a list, and the upstream sees the address of the proxy: give one address, or leave it out',
    ],
  ],
  [
    'with an outcome that refuses one of several',
    withMore(
      'egress: { localAddress: [10.0.0.1, 10.0.0.2] }',
      'outcomes: [{ name: a, status: 403, egress: next }]',
    ),
    [],
  ],
  [
    'with an outcome that refuses the only one',
    withMore('egress: { localAddress: 10.0.0.1 }', 'outcomes: [{ name: a, status: 403, egress: next }]'),
    [
      '8:48 deployments.d.outcomes[0].egress: has no next address: list several under egress.localAddress, or leave it out',
    ],
  ],
  [
    'with an outcome that pauses, too',
    withMore(
      'egress: { localAddress: [10.0.0.1, 10.0.0.2] }',
      'outcomes: [{ name: a, status: 403, egress: next, pause: 1s }]',
    ),
    [
      '8:61 deployments.d.outcomes[0].pause: would keep requests from the next address, too: leave out pause or egress',
    ],
  ],
  [
    'from an address of another family than the proxy',
    withMore('egress: { localAddress: "::1", proxy: { url: "http://127.0.0.1:3128" } }'),
    [
      '7:29 deployments.d.egress.localAddress: is an IPv6 address, from which http://127.0.0.1:3128 cannot be reached: give an IPv4 address',
    ],
  ],
  [
    'through a proxy, from an address of its family',
    withMore('egress: { localAddress: 10.0.0.1, proxy: { url: "http://127.0.0.1:3128", credential: a } }'),
    [],
  ],
  ...['proxy:3128', 'socks5://proxy:1080', 'http://proxy/path', 'http://proxy:0'].map(
    (url): Case => [
      `through ${url}`,
      withMore(`egress: { proxy: { url: "${url}" } }`),
      [`7:29 deployments.d.egress.proxy.url: ${PROXY_URL}`],
    ],
  ),
  [
    'with a password in the url',
    withMore('egress: { proxy: { url: "http://me:hunter2@proxy:3128" } }'),
    [
      '7:29 deployments.d.egress.proxy.url: contains a user or a password: describe them under credentials, and name that in credential',
    ],
  ],
  [
    'with a credential that does not exist',
    withMore('egress: { proxy: { url: "https://proxy:3128", credential: b } }'),
    ['7:63 deployments.d.egress.proxy.credential: names a credential that does not exist: credentials has a'],
  ],
  ...['proxy', '10.0.0.1', '0.0.0.0', '[2001:db8::1]'].map(
    (host): Case => [
      `with a credential that http://${host} exposes`,
      withMore(`egress: { proxy: { url: "http://${host}:3128", credential: a } }`),
      [
        '7:29 deployments.d.egress.proxy.url: is not encrypted, which exposes the credential: write https://, or set allowPlaintext to true',
      ],
    ],
  ),
  ...[
    'url: "http://proxy:3128", credential: a, allowPlaintext: true',
    'url: "http://proxy:3128"',
    'url: "https://proxy:3128", credential: a',
    'url: "http://localhost:3128", credential: a',
    'url: "http://127.8.8.8:3128", credential: a',
    'url: "http://[::1]:3128", credential: a',
  ].map(
    (keys): Case => [
      `with no credential that others can read: ${keys}`,
      withMore(`egress: { proxy: { ${keys} } }`),
      [],
    ],
  ),
  [
    'with what only a credential or TLS can use',
    withMore('egress: { proxy: { url: "http://proxy:3128", allowPlaintext: true, caFile: x } }'),
    [
      '7:66 deployments.d.egress.proxy.allowPlaintext: is for a credential, and there is none: name one, or leave allowPlaintext out',
      '7:80 deployments.d.egress.proxy.caFile: needs a url with TLS: write https:// there, or leave caFile out',
    ],
  ],
];

const tls: Case[] = [
  ['two pins', withMore(`tls: { pinSha256: [${PIN}, ${PIN}] }`), []],
  [
    'no pin',
    withMore('tls: { pinSha256: [] }'),
    ['7:23 deployments.d.tls.pinSha256: must be a list of at least one public-key pin'],
  ],
  ...['sha256/AAAA', 'a1b2'.repeat(16)].map(
    (pin): Case => [
      `the pin ${pin}`,
      withMore(`tls: { pinSha256: [${PIN}, "${pin}"] }`),
      ['7:72 deployments.d.tls.pinSha256[1]: must be the SHA-256 of a public key in base64, 44 characters'],
    ],
  ),
  [
    'a certificate without its key',
    withMore('tls: { certFile: c.pem }'),
    ['7:5 deployments.d.tls.keyFile: is missing: a certificate needs its private key; name the file'],
  ],
  [
    'a key without its certificate',
    withMore('tls: { keyFile: k.pem }'),
    ['7:5 deployments.d.tls.certFile: is missing: a private key needs its certificate; name the file'],
  ],
  [
    'a passphrase without a key',
    withMore('tls: { keyPassphrase: { env: K } }'),
    ['7:5 deployments.d.tls.keyFile: is missing: a passphrase opens a private key; name its file'],
  ],
  [
    'what only TLS can do',
    withDeployment(
      'baseUrl: http://a.example',
      'match: { host: a }',
      'credential: a',
      `tls: { allowPlaintext: true, pinSha256: [${PIN}], serverName: b, certFile: c, keyFile: k }`,
    ),
    ['pinSha256:45', 'serverName:107', 'certFile:120', 'keyFile:132'].map((place) => {
      const [key, column] = place.split(':');
      return `7:${column} deployments.d.tls.${key}: needs a baseUrl with TLS: write https:// there, or leave it out`;
    }),
  ],
];

describe('egress and tls of a deployment', () => {
  test.each([...egress, ...tls])('%s', (_title, text, lines) => {
    expectIssues(text, lines);
  });
});
