import { describe, expect, test } from '@jest/globals';
import { parseConfig } from '../support/parsed-config.ts';
import { type Case, expectIssues } from './issue-lines.ts';
import { CREDENTIALS, DEPLOYMENTS } from './texts.ts';

const RIGHT = `${CREDENTIALS}\n${DEPLOYMENTS}`;
const HASH = 'ab'.repeat(32);
const OTHER = 'cd'.repeat(32);
const NOBODY =
  'so no request would be served: describe a client (digest-gateway client add NAME prints the lines)';

/** A configuration with these clients, the first in line 4, each on its own line; and more lines after them. */
function withClients(clients: readonly string[], ...more: string[]): string {
  return [RIGHT, 'clients:', ...clients.map((client) => `  - ${client}`), ...more].join('\n');
}

const one = (identify: string, id = 'c') => `{ id: ${id}, identify: ${identify} }`;
const TLS = 'listen: { tls: { certFile: c, keyFile: k, clientCaFile: a } }';
const ISSUERS = 'jwt: { issuers: [{ issuer: "https://i.example", jwksUrl: "https://i.example/keys" }] }';
const JWT = 'issuer: "https://i.example", audience: gateway';

const nobody: Case[] = [
  [
    'no clients and no word of anonymous',
    `${RIGHT}\nanonymous: false`,
    [`1:1 clients: is missing, ${NOBODY}, or set anonymous to true to serve everyone on this machine`],
  ],
  [
    'no clients on an address of all',
    `${RIGHT}\nanonymous: false\nlisten: { address: 0.0.0.0 }`,
    [`1:1 clients: is missing, ${NOBODY}`],
  ],
  [
    'an empty list of clients',
    `${RIGHT}\nclients: []`,
    [`3:10 clients: is empty, ${NOBODY}, or set anonymous to true to serve everyone on this machine`],
  ],
  ['an empty list of clients where everyone is served', `${RIGHT}\nclients: []\nanonymous: true`, []],
  [
    'clients on an address of all',
    withClients([one('{ addresses: [10.0.0.1] }')], 'listen: { address: 0.0.0.0 }'),
    [],
  ],
  ['clients as a mapping', `${RIGHT}\nclients: { c: {} }`, ['3:10 clients: must be a list of clients']],
];

const ids: Case[] = [
  [
    'an id twice',
    withClients([one('{ addresses: [10.0.0.1] }'), one('{ addresses: [10.0.0.2] }')]),
    ['5:11 clients[1].id: is the id of clients[0], too: give each its own (first at c.yaml:4:11)'],
  ],
  ...['a:b', 'anonymous', '"ä"', '""'].map(
    (id): Case => [
      `the id ${id}`,
      withClients([one('{ addresses: [10.0.0.1] }', id)]),
      [
        '4:11 clients[0].id: must be a name: letters, digits, "-", "_" and "." only, 64 at most, a letter or digit first; not anonymous',
      ],
    ],
  ),
];

const proofs: Case[] = [
  [
    'nothing to identify by',
    withClients([one('{}')]),
    [
      '4:24 clients[0].identify: has nothing that identifies the client: give addresses, apiKeySha256, apiKeys, certificate or jwt',
    ],
  ],
  [
    'a key instead of its hash',
    withClients([one('{ apiKeySha256: dgk_hunter2 }')]),
    [
      '4:40 clients[0].identify.apiKeySha256: must be the SHA-256 of an API key: this is a key, not its SHA-256, and readers of this file know it; make another with `digest-gateway client add NAME`',
    ],
  ],
  [
    'a key instead of its hash in a list',
    withClients([
      one('{ apiKeySha256: [dgk_hunter2], apiKeys: [{ sha256: dgk_hunter2 }, { sha256: other }] }'),
    ]),
    [
      '4:41 clients[0].identify.apiKeySha256[0]: must be the SHA-256 of an API key: this is a key, not its SHA-256, and readers of this file know it; make another with `digest-gateway client add NAME`',
      '4:75 clients[0].identify.apiKeys[0].sha256: must be the SHA-256 of an API key: this is a key, not its SHA-256, and readers of this file know it; make another with `digest-gateway client add NAME`',
      '4:100 clients[0].identify.apiKeys[1].sha256: must be the SHA-256 of an API key, 64 hex digits, as `digest-gateway client add NAME` prints it',
    ],
  ],
  [
    'a key as a key of the mapping',
    withClients([one('{ dgk_hunter2 }')]),
    [
      '4:24 clients[0].identify: has nothing that identifies the client: give addresses, apiKeySha256, apiKeys, certificate or jwt',
      '4:26 clients[0].identify: a key here does not exist: there are addresses, apiKeySha256, apiKeys, certificate, jwt',
    ],
  ],
  [
    'the hash of nothing',
    withClients([one('{ apiKeySha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855 }')]),
    [
      '4:40 clients[0].identify.apiKeySha256: is the SHA-256 of nothing: make a key with digest-gateway client add NAME',
    ],
  ],
  [
    'a key of two clients',
    withClients([
      one(`{ apiKeySha256: [${HASH}, ${OTHER}], addresses: [10.0.0.1] }`, 'first'),
      one(`{ apiKeySha256: ${OTHER.toUpperCase()} }`),
    ]),
    [
      '5:40 clients[1].identify.apiKeySha256: is the key of first, too (cdcdcdcd…): make one for each with digest-gateway client add NAME (first at c.yaml:4:44)',
    ],
  ],
  [
    'keys in both forms, with ends and notes',
    withClients([
      one(
        `{ apiKeySha256: ${HASH}, apiKeys: [{ sha256: ${OTHER}, expires: 2027-03-01, note: Büro Berlin }, { sha256: ${'ef'.repeat(32)} }] }`,
      ),
    ]),
    [],
  ],
  [
    'a key of two clients in the other form',
    withClients([
      one(`{ apiKeySha256: ${OTHER} }`, 'first'),
      one(`{ apiKeys: [{ sha256: ${HASH} }, { sha256: ${OTHER.toUpperCase()} }] }`),
    ]),
    [
      '5:114 clients[1].identify.apiKeys[1]: is the key of first, too (cdcdcdcd…): make one for each with digest-gateway client add NAME (first at c.yaml:4:44)',
    ],
  ],
  [
    'a key twice and a note twice',
    withClients([
      one(
        `{ apiKeySha256: ${HASH}, apiKeys: [{ sha256: ${HASH} }, { sha256: ${OTHER}, note: a }, { sha256: ${'ef'.repeat(32)}, note: a }] }`,
      ),
    ]),
    [
      '4:116 clients[0].identify.apiKeys[0]: is listed twice for this client: keep one of the two',
      '4:281 clients[0].identify.apiKeys[2]: has the note of another key of this client: give each its own',
    ],
  ],
  [
    'an end that is none, a note that is too long, and no hash',
    withClients([one(`{ apiKeys: [{ expires: 2027-02-30, note: ${'n'.repeat(65)} }] }`)]),
    [
      '4:36 clients[0].identify.apiKeys[0].sha256: is missing: give the SHA-256 of an API key, 64 hex digits, as `digest-gateway client add NAME` prints it',
      '4:47 clients[0].identify.apiKeys[0].expires: is not a date or time: write a date, such as 2027-03-01, or a time, such as 2027-03-01T12:00:00Z',
      '4:65 clients[0].identify.apiKeys[0].note: must be a note of 1 to 64 characters on one line',
    ],
  ],
  [
    'no keys',
    withClients([one('{ apiKeys: [] }')]),
    [
      '4:35 clients[0].identify.apiKeys: must be a list of at least one key, such as [{ sha256: HASH, expires: 2027-03-01 }]',
    ],
  ],
  [
    'a rule with an end that is none',
    withClients([
      '{ id: c, identify: { addresses: [10.0.0.1] }, allow: [{ deployment: d, ends: 2027-03-01 }, { deployment: d, ends: soon }] }',
    ]),
    [
      '4:119 clients[0].allow[1].ends: is not a date or time: write a date, such as 2027-03-01, or a time, such as 2027-03-01T12:00:00Z',
    ],
  ],
  [
    'a network that is none',
    withClients([one('{ addresses: [10.0.0.1, ten] }')]),
    [
      '4:48 clients[0].identify.addresses[1]: is neither an address nor a network: write 10.1.0.0/16, 2001:db8::/32 or 10.1.2.3',
    ],
  ],
  [
    'bits after the prefix',
    withClients([one('{ addresses: ["2001:db8::1/32"] }')]),
    ['4:38 clients[0].identify.addresses[0]: has bits after its prefix: write 2001:db8::/32'],
  ],
  [
    'every address and nothing else',
    withClients([one('{ addresses: [0.0.0.0/0] }')]),
    [
      '4:37 clients[0].identify.addresses: is every address, so that this client would be everyone: let it ask for more, or name its networks',
    ],
  ],
  ['every address and a key', withClients([one(`{ addresses: ["::/0"], apiKeySha256: ${HASH} }`)]), []],
  [
    'a certificate without an authority for it',
    withClients([one('{ certificate: { san: "dns:a" } }')]),
    [
      '4:39 clients[0].identify.certificate: needs listen.tls.clientCaFile: name the authority that signs the certificates of clients',
    ],
  ],
  ['a certificate with one', withClients([one('{ certificate: { san: "dns:a" } }')], TLS), []],
  [
    'a certificate of which nothing is said',
    withClients([one('{ certificate: {} }')], TLS),
    [
      '4:39 clients[0].identify.certificate: says nothing of the certificate: give fingerprint256, subject or san',
    ],
  ],
  ...['CN=reporting, Inc.', 'cn=reporting', 'CN=a,, O=b', 'CN=a\\'].map(
    (subject): Case => [
      `the subject ${subject}, which no certificate has`,
      withClients([one(`{ certificate: { subject: '${subject}' } }`)], TLS),
      [
        '4:50 clients[0].identify.certificate.subject: is no subject that a certificate can have: write it as OpenSSL prints it, with \\, for a comma in a value',
      ],
    ],
  ),
  ...['reporting', 'CN=', '/CN=reporting'].map(
    (subject): Case => [
      `the subject ${subject}, which is none`,
      withClients([one(`{ certificate: { subject: '${subject}' } }`)], TLS),
      [
        '4:50 clients[0].identify.certificate.subject: must be the attributes of a subject, such as CN=reporting, O=Example',
      ],
    ],
  ),
  ...['CN=reporting\\, Inc., O=x', 'CN = reporting', '2.5.4.3=reporting', 'CN=a + OU=b'].map(
    (subject): Case => [
      `the subject ${subject}`,
      withClients([one(`{ certificate: { subject: '${subject}' } }`)], TLS),
      [],
    ],
  ),
  ['an address of a certificate', withClients([one('{ certificate: { san: "IP:::1" } }')], TLS), []],
  [
    'a network, which no certificate has',
    withClients([one('{ certificate: { san: "ip:10.0.0.0/8" } }')], TLS),
    [
      '4:46 clients[0].identify.certificate.san: must be an alternative name after its kind: dns:reporting.internal, uri:spiffe://…, email:… or ip:…',
    ],
  ],
  [
    'an alternative name without kind',
    withClients([one('{ certificate: { san: reporting.internal } }')], TLS),
    [
      '4:46 clients[0].identify.certificate.san: must be an alternative name after its kind: dns:reporting.internal, uri:spiffe://…, email:… or ip:…',
    ],
  ],
];

const tokens: Case[] = [
  ['a token', withClients([one(`{ jwt: { ${JWT} } }`)], ISSUERS), []],
  [
    'a token of nobody',
    withClients([one(`{ jwt: { ${JWT} } }`)]),
    ['4:41 clients[0].identify.jwt.issuer: names an issuer that is not under jwt.issuers: describe it there'],
  ],
  [
    'a token of somebody else',
    withClients([one(`{ jwt: { ${JWT} } }`)], ISSUERS.replace('issuer: "https://i.example"', 'issuer: x')),
    ['4:41 clients[0].identify.jwt.issuer: names an issuer that is not under jwt.issuers: there are x'],
  ],
  [
    'a token for no audience',
    withClients([one('{ jwt: { issuer: "https://i.example" } }')], ISSUERS),
    ['4:26 clients[0].identify.jwt.audience: is missing: give the audience (aud) of tokens for this gateway'],
  ],
  ...['http://i.example/keys', 'https://me:hunter2@i.example/keys', 'keys.json'].map(
    (url): Case => [
      `keys from ${url}`,
      withClients([one('{ addresses: [10.0.0.1] }')], ISSUERS.replace('https://i.example/keys', url)),
      [
        '5:58 jwt.issuers[0].jwksUrl: must be the https:// address of its key set; http:// on a loopback address only',
      ],
    ],
  ),
  [
    'an issuer twice',
    withClients(
      [one('{ addresses: [10.0.0.1] }')],
      ISSUERS.replace('[', '[{ issuer: "https://i.example", jwksUrl: "http://127.0.0.1:1/" }, '),
    ),
    ['5:93 jwt.issuers[1].issuer: is listed twice: keep one of the two'],
  ],
];

const never = (id: string) =>
  `is never reached: every request that fits it also fits ${id} before it; put it first, or let it require more`;

const order: Case[] = [
  [
    'a network after the one that it lies in',
    withClients([one('{ addresses: [10.0.0.0/8, 192.0.2.1] }', 'wide'), one('{ addresses: [10.1.0.0/16] }')]),
    [`5:5 clients[1]: ${never('wide')}`],
  ],
  [
    'an API key, after its address alone',
    withClients([
      one('{ addresses: ["::ffff:10.0.0.0/104"] }', 'wide'),
      one(`{ addresses: [10.1.0.0/16], apiKeySha256: ${HASH} }`),
    ]),
    [],
  ],
  [
    'a network after the same one in another form',
    withClients([one('{ addresses: ["::ffff:10.0.0.0/104"] }', 'wide'), one('{ addresses: [10.1.0.0/16] }')]),
    [`5:5 clients[1]: ${never('wide')}`],
  ],
  [
    'more of a token, after less',
    withClients(
      [one(`{ jwt: { ${JWT} } }`, 'wide'), one(`{ jwt: { ${JWT}, claims: { role: x } } }`)],
      ISSUERS,
    ),
    [`5:5 clients[1]: ${never('wide')}`],
  ],
  [
    'the narrow before the wide',
    withClients([
      one('{ addresses: [10.1.0.0/16] }', 'narrow'),
      one(`{ apiKeySha256: ${HASH}, addresses: [10.0.0.0/8] }`, 'key'),
      one('{ addresses: [10.0.0.0/8] }'),
      one('{ addresses: [10.0.0.0/7] }', 'wider'),
    ]),
    [],
  ],
  [
    'one of two certificates, after one of them',
    withClients(
      [
        one(`{ certificate: { fingerprint256: ${HASH} } }`, 'one'),
        one(`{ certificate: { fingerprint256: [${HASH}, ${OTHER}] } }`),
      ],
      TLS,
    ),
    [],
  ],
  [
    'the same certificates in another order',
    withClients(
      [
        one(`{ certificate: { fingerprint256: [${OTHER}, ${HASH}] } }`, 'wide'),
        one(`{ certificate: { fingerprint256: [${HASH}, ${OTHER}], san: "dns:a" } }`),
      ],
      TLS,
    ),
    [`5:5 clients[1]: ${never('wide')}`],
  ],
  [
    'another of the same kind',
    withClients(
      [one(`{ jwt: { ${JWT}, subject: x } }`, 'x'), one(`{ jwt: { ${JWT}, subject: y } }`)],
      ISSUERS,
    ),
    [],
  ],
];

const listen: Case[] = [
  [
    'the PROXY protocol from everywhere',
    `${RIGHT}\nlisten: { proxyProtocol: [10.0.0.1, "0.0.0.0/0"] }`,
    [
      '3:37 listen.proxyProtocol[1]: is every address, so that everyone could claim any: name the proxies only',
    ],
  ],
  [
    'a proxy that is everybody',
    `${RIGHT}\nlisten: { trustedProxies: [10.0.0.1, "::/0"] }`,
    [
      '3:38 listen.trustedProxies[1]: is every address, so that everyone could claim any: name the proxies only',
    ],
  ],
  [
    'another header',
    `${RIGHT}\nlisten: { forwardedHeader: X-Real-IP }`,
    ['3:28 listen.forwardedHeader: must be one of X-Forwarded-For, Forwarded'],
  ],
  [
    'a certificate without key',
    `${RIGHT}\nlisten: { tls: { certFile: c } }`,
    [
      '3:11 listen.tls.keyFile: is missing: give the name of a file, or { file: NAME, readableByOthers: true }',
    ],
  ],
  [
    'headers larger than anybody needs',
    `${RIGHT}\nlisten: { limits: { headerSize: 2MiB, connections: 0 } }`,
    [
      '3:33 listen.limits.headerSize: is 2097152B: give a size from 1KiB to 1MiB',
      '3:52 listen.limits.connections: must be a whole number from 1 to 1000000, not 0',
    ],
  ],
];

const DAY_MS = 86_400_000;
const dayIn = (days: number): string => new Date(Date.now() + days * DAY_MS).toISOString().slice(0, 10);
const observed = (mode: string) =>
  withClients([`{ id: c, mode: ${mode}, identify: { addresses: [10.0.0.1] } }`]);

const modes: Case[] = [
  ['rules that are observed for 90 days', observed(`{ observe: true, until: ${dayIn(90)} }`), []],
  ['rules that were observed', observed('{ observe: true, until: 2026-01-31T12:00:00+01:00 }'), []],
  [
    'rules that are observed for longer',
    observed(`{ observe: true, until: ${dayIn(91)} }`),
    [
      `4:44 clients[0].mode.until: is more than 90 days ahead, and the rules of this client protect nothing until then: name a day up to ${dayIn(90)}`,
    ],
  ],
  [
    'rules that are observed without an end',
    observed('{ observe: true }'),
    ['4:14 clients[0].mode.until: is missing: give a date, such as 2027-03-01, or a time of RFC 3339'],
  ],
  [
    'rules that are not observed',
    observed(`{ observe: false, until: ${dayIn(1)} }`),
    ['4:31 clients[0].mode.observe: must be true; leave mode out for rules that refuse'],
  ],
  [
    'rules that are observed until a day that is none',
    observed('{ observe: true, until: 2026-02-30 }'),
    [
      '4:44 clients[0].mode.until: is not a date or time: write a date, such as 2027-03-01, or a time, such as 2027-03-01T12:00:00Z',
    ],
  ],
];

describe('clients', () => {
  test.each([...nobody, ...ids, ...proofs, ...tokens, ...order, ...listen, ...modes])(
    '%s',
    (_title, text, lines) => {
      expectIssues(text, lines);
    },
  );

  test('hashes and fingerprints become lists in lower case', () => {
    const certificate = `certificate: { fingerprint256: "${'AB:'.repeat(31)}AB" }`;
    const text = withClients([one(`{ apiKeySha256: ${HASH.toUpperCase()}, ${certificate} }`)], TLS);
    expect(parseConfig(text, 'c.yaml').clients[0]?.identify).toEqual({
      apiKeySha256: [HASH],
      certificate: { fingerprint256: [HASH] },
    });
  });
});
