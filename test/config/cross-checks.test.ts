import { describe, expect, test } from '@jest/globals';
import { keyList } from '../../src/config/cross-check.ts';
import { type Case, expectIssues, issueLines } from './issue-lines.ts';
import { CREDENTIALS, DEPLOYMENTS, withDeployment, withMore } from './texts.ts';

const RIGHT = `${CREDENTIALS}\n${DEPLOYMENTS}`;
const OPEN =
  'anonymous: would let everyone who reaches listen.address use the credentials: set it to false and describe clients, or listen on 127.0.0.1';
const oidc = (roles: string) =>
  `{ issuer: https://a.example, clientId: c, publicUrl: https://b.example, roles: { ${roles} } }`;

const TOKEN =
  'control.tokenSha256: is missing: a control address that is not loopback needs a token; give its SHA-256, or oidc, or listen on 127.0.0.1';
const HASH = 'ab'.repeat(32);

const exposure: Case[] = [
  ...['0.0.0.0', '"::"', '10.0.0.1', '"::ffff:10.0.0.1"', '"fe80::1%eth0"'].map(
    (address): Case => [
      `anonymous on ${address}`,
      `${RIGHT}\nanonymous: true\nlisten: { address: ${address} }`,
      [`3:12 ${OPEN}`],
    ],
  ),
  [
    'anonymous on UNIX sockets is right',
    `${RIGHT}\nanonymous: true\nlisten: { address: "unix:/a" }\ncontrol: { address: "unix:/b" }`,
    [],
  ],
  ...['127.0.0.1', '127.9.9.9', '"::1"', 'localhost', '"::ffff:127.0.0.1"'].map(
    (address): Case => [
      `anonymous on ${address} is right`,
      `${RIGHT}\nanonymous: true\nlisten: { address: ${address} }\ncontrol: { address: ${address} }`,
      [],
    ],
  ),
  ['a control port for all, without token', `${RIGHT}\ncontrol: { address: 0.0.0.0 }`, [`3:1 ${TOKEN}`]],
  ['a control port for all, with token', `${RIGHT}\ncontrol: { address: 0.0.0.0, tokenSha256: ${HASH} }`, []],
  [
    'a token for reading alone',
    `${RIGHT}\ncontrol: { readTokenSha256: ${HASH} }`,
    [
      '3:29 control.readTokenSha256: would be the only token, and anyone would read without it: give control.tokenSha256 or control.oidc, too',
    ],
  ],
  [
    'one token for reading and acting',
    `${RIGHT}\ncontrol: { tokenSha256: ${HASH}, readTokenSha256: ${HASH.toUpperCase()} }`,
    [
      `3:108 control.readTokenSha256: is the hash of control.tokenSha256, which may act: give each its own token`,
    ],
  ],
  [
    'actions without token and audit log',
    `${RIGHT}\ncontrol: { actions: true }`,
    [
      '3:21 control.actions: needs a token or a sign-in: give control.tokenSha256 or control.oidc',
      '3:21 control.actions: needs an audit log, which records each action: give audit',
    ],
  ],
  [
    'actions with all that they need',
    `${RIGHT}\ncontrol: { actions: true, tokenSha256: ${HASH} }\naudit: { directory: d, keyFile: k }`,
    [],
  ],
  [
    'a sign-in in the place of a token',
    `${RIGHT}\ncontrol: { address: 0.0.0.0, actions: true, fourEyes: true, readTokenSha256: ${HASH}, oidc: ${oidc('operator: [ops]')} }\naudit: { directory: d, keyFile: k }`,
    [],
  ],
  [
    'a sign-in that gives nobody a role',
    `${RIGHT}\ncontrol: { oidc: ${oidc('claim: groups')} }`,
    ['3:97 control.oidc.roles: admits no one: give viewer, operator or auditor the values of the claim'],
  ],
  [
    'four eyes without people',
    `${RIGHT}\ncontrol: { fourEyes: { actions: [promote] }, actions: true, tokenSha256: ${HASH} }\naudit: { directory: d, keyFile: k }`,
    [
      '3:22 control.fourEyes: needs people to tell apart, and actions: give control.oidc, and set control.actions to true',
    ],
  ],
  [
    'four eyes without actions',
    `${RIGHT}\ncontrol: { fourEyes: true, oidc: ${oidc('operator: [ops]')} }`,
    [
      '3:22 control.fourEyes: needs people to tell apart, and actions: give control.oidc, and set control.actions to true',
    ],
  ],
  [
    'one port for both planes',
    `${RIGHT}\ncontrol: { port: 8080 }`,
    ['3:18 control.port: is the port of listen, too: give each its own'],
  ],
  [
    'one UNIX socket for both planes',
    `${RIGHT}\nlisten: { address: "unix:/a" }\ncontrol: { address: "unix:/a" }`,
    ['4:21 control.address: is the socket of listen, too: give each its own'],
  ],
  [
    'a UNIX socket with the PROXY protocol',
    `${RIGHT}\nlisten: { address: "unix:/a", proxyProtocol: [10.0.0.7] }`,
    [
      '3:46 listen.proxyProtocol: names networks, and clients of a UNIX socket are of none: leave it out, or listen on a port',
    ],
  ],
  [
    'revocation lists without an authority',
    `${RIGHT}\nlisten: { tls: { certFile: a, keyFile: b, crlFile: c } }`,
    [
      '3:52 listen.tls.crlFile: needs listen.tls.clientCaFile: without it no client is asked for a certificate',
    ],
  ],
  ['any free port for both planes', `${RIGHT}\nlisten: { port: 0 }\ncontrol: { port: 0 }`, []],
];

const plaintext = (...lines: string[]) =>
  withDeployment('baseUrl: http://a.example', 'match: { host: a }', 'credential: a', ...lines);

const rewriting = (prefix: string, strip: string) =>
  withDeployment(
    'baseUrl: https://a.example',
    `match: { pathPrefix: ${prefix} }`,
    'credential: a',
    `rewrite: { stripPrefix: ${strip} }`,
  );
const NOT_THE_PREFIX =
  'is not how match.pathPrefix begins, so no request has it: take the first segments of that prefix';

const rewrites: Case[] = [
  ['all of the prefix', rewriting('/gw/a', '/gw/a'), []],
  ['its first segment', rewriting('/gw/a/', '/gw'), []],
  [
    'a part of a segment',
    rewriting('/gw/a', '/g'),
    [`7:29 deployments.d.rewrite.stripPrefix: ${NOT_THE_PREFIX}`],
  ],
  ['another prefix', rewriting('/gw/a', '/b'), [`7:29 deployments.d.rewrite.stripPrefix: ${NOT_THE_PREFIX}`]],
];

const credentials: Case[] = [
  [
    'an origin without TLS',
    plaintext(),
    [
      '4:14 deployments.d.baseUrl: is not encrypted: write https://, or set tls.allowPlaintext to true for a test',
    ],
  ],
  ['an origin without TLS, where that is allowed', plaintext('tls: { allowPlaintext: true }'), []],
  [
    'a credential that does not exist',
    withDeployment('baseUrl: https://a.example', 'match: { host: a }', 'credential: b'),
    ['6:17 deployments.d.credential: names a credential that does not exist: credentials has a'],
  ],
  [
    'a credential that a rule names',
    `${CREDENTIALS}\n${DEPLOYMENTS}\nclients: [{ id: c, identify: { addresses: [10.0.0.1] }, allow: [{ deployment: d, credential: b }] }]`,
    ['3:94 clients[0].allow[0].credential: names a credential that does not exist: credentials has a'],
  ],
  [
    'a credential with a wrong letter, of more than are listed',
    `credentials: { ${Array.from({ length: 25 }, (_, n) => `${'abcdefghijklmnopqrstuvwxy'[n]?.repeat(3)}: { username: { env: U }, password: { env: P } }`).join(', ')} }
deployments:
  d: { baseUrl: "https://a.example", match: { host: a }, credential: xxz }`,
    [
      '3:70 deployments.d.credential: names a credential that does not exist: credentials has xxx, aaa, bbb, ccc, ddd, eee, fff, ggg, hhh, iii, jjj, kkk, lll, mmm, nnn, ooo, ppp, qqq, rrr, sss and 5 more',
    ],
  ],
  [
    'a credential where there are none',
    DEPLOYMENTS,
    ['1:91 deployments.d.credential: names a credential that does not exist: describe it under credentials'],
  ],
  [
    'neither credential nor sites',
    withDeployment('baseUrl: https://a.example', 'match: { host: a }'),
    ['3:3 deployments.d.credential: is missing: give credential, or sites that each name one'],
  ],
  [
    'credential and sites',
    withMore('siteParameter: s', 'sites: { x: { credential: a } }'),
    ['8:12 deployments.d.sites: cannot be combined with credential: keep one of the two'],
  ],
];

const withSites = (...lines: string[]) =>
  `${withDeployment('baseUrl: https://a.example', 'match: { host: a }', ...lines)}`.replace(
    CREDENTIALS,
    'credentials: { a: &c { username: { env: U }, password: { env: P } }, b: *c }',
  );

const sites: Case[] = [
  [
    'sites of one credential',
    withSites('siteParameter: s', 'sites: { x: { credential: a }, "y z": { credential: a } }'),
    [],
  ],
  [
    'sites of several credentials',
    withSites('siteParameter: s', 'sites:', '  x: { credential: b }', '  y: { credential: a }'),
    [],
  ],
  [
    'a site whose credential does not exist',
    withSites('siteParameter: s', 'sites: { x: { credential: c } }'),
    ['7:31 deployments.d.sites.x.credential: names a credential that does not exist: credentials has a, b'],
  ],
  [
    'sites without parameter',
    withSites('sites: { x: { credential: a } }'),
    [
      '3:3 deployments.d.siteParameter: is missing: name the query parameter that holds the site, such as site_name',
    ],
  ],
  [
    'sites without one',
    withSites('siteParameter: s', 'sites: {}'),
    ['7:12 deployments.d.sites: has no site: name at least one, or give credential instead'],
  ],
  [
    'a site that no client can name',
    withSites('siteParameter: s', 'sites: { __proto__: { credential: a } }'),
    [
      '7:14 deployments.d.sites.__proto__: is not a name that can be used here: no control characters, 128 at most, a letter or digit first',
    ],
  ],
];

const NAME = 'letters, digits, "-", "_" and "." only, 64 at most, a letter or digit first';

const names: Case[] = ['"a b"', '-a', '""', '__proto__', 'ä', 'a'.repeat(65)].map((name) => {
  const shown = /^[\w-]+$/.test(name) ? `.${name}` : `[${name.startsWith('"') ? name : `"${name}"`}]`;
  return [
    `a deployment called ${name}`,
    `${CREDENTIALS}\ndeployments:\n  ${name}: { baseUrl: "https://a.example", match: { host: a }, credential: a }`,
    [`3:3 deployments${shown}: is not a name that can be used here: ${NAME}`],
  ];
});

const CLIENT_OF_D = `clients: [{ id: c, identify: { addresses: [10.0.0.1] }, allow: [{ deployment: d, sites: [x], operations: [o] }] }]`;

const JWT = 'jwt: { issuer: "https://i.example", audience: g }';

const refused: Case[] = [
  [
    'a port that is no whole number',
    `${RIGHT}\nanonymous: true\nlisten: { port: 1.5, address: 0.0.0.0 }`,
    [`3:12 ${OPEN}`, '4:17 listen.port: must be a whole number from 0 to 65535, not 1.5'],
  ],
  [
    'a credential that a deployment uses',
    `credentials: { a: {} }\n${DEPLOYMENTS}`,
    [
      '1:16 credentials.a.username: is missing: give a mapping: { env: NAME }, { file: NAME }, { sealed: NAME } or { value: TEXT }',
    ],
  ],
  [
    'a deployment and its parts that a client names',
    `${withMore('siteParameter: 5', 'sites: 6', 'operations: 7').replace('    credential: a\n', '')}\n${CLIENT_OF_D}`,
    [
      '6:20 deployments.d.siteParameter: must be the name of a query parameter, such as site_name',
      '7:12 deployments.d.sites: must be a mapping of keys to values',
      '8:17 deployments.d.operations: must be a mapping of keys to values',
    ],
  ],
  [
    'the issuers of tokens',
    `${RIGHT}\njwt: 5\nclients: [{ id: c, identify: { ${JWT} } }]`,
    ['3:6 jwt: must be a mapping of keys to values'],
  ],
  [
    'a condition of a client before one that asks for less',
    [
      RIGHT,
      'clients:',
      '  - { id: narrow, identify: { addresses: [10.0.0.0/8], apiKeySha256: 5 } }',
      '  - { id: wide, identify: { addresses: [10.1.0.0/16] } }',
    ].join('\n'),
    [
      '4:70 clients[0].identify.apiKeySha256: must be the SHA-256 of an API key, 64 hex digits, as `digest-gateway client add NAME` prints it; or a list of them',
    ],
  ],
  [
    'a section that others need',
    `${RIGHT}\nredis: 5\naudit: { directory: a, keyFile: k, sinks: [{ name: s, redis: {} }] }`,
    ['3:8 redis: must be a mapping of keys to values'],
  ],
];

const prototypes: Case[] = [
  [
    'a parameter of an operation called __proto__',
    withMore('operations: { o: { method: GET, path: /a, parameters: { __proto__: text } } }'),
    [
      '7:61 deployments.d.operations.o.parameters.__proto__: is not a name that can be checked: letters, digits, "-", "_", "." and "~" only',
    ],
  ],
  [
    'a credential called constructor',
    withDeployment('baseUrl: https://a.example', 'match: { host: a }', 'credential: constructor'),
    ['6:17 deployments.d.credential: names a credential that does not exist: credentials has a'],
  ],
];

const two = (first: string, second: string) =>
  [
    CREDENTIALS,
    'deployments:',
    `  d: { baseUrl: "https://a.example", match: ${first}, credential: a }`,
    `  e: { baseUrl: "https://a.example", match: ${second}, credential: a }`,
  ].join('\n');

const matches: Case[] = [
  [
    'a prefix twice',
    two('{ pathPrefix: /x }', '{ pathPrefix: /x }'),
    ['4:59 deployments.e.match.pathPrefix: is that of deployments.d, too: give each its own'],
  ],
  [
    'a host twice, in another case',
    two('{ host: a.example }', '{ host: A.EXAMPLE }'),
    ['4:53 deployments.e.match.host: is that of deployments.d, too: give each its own'],
  ],
  ['a prefix within another', two('{ pathPrefix: /x }', '{ pathPrefix: /x/y }'), []],
];

describe('checks of values against each other', () => {
  test.each([...exposure, ...rewrites, ...credentials, ...sites, ...names, ...matches])(
    '%s',
    (_title, text, lines) => {
      expectIssues(text, lines);
    },
  );

  test.each(refused)('ignore what was refused: %s', (_title, text, lines) => {
    expectIssues(text, lines);
  });

  test.each(prototypes)('find no name in a prototype: %s', (_title, text, lines) => {
    expectIssues(text, lines);
  });

  test('compare no more wrong names with the keys than there is time for, and each name once', () => {
    const keys = Object.fromEntries(Array.from({ length: 100 }, (_, n) => [`key-${n + 100}`, n]));
    const first = (wrong: string) => keyList(keys, wrong).split(',')[0];
    expect(first('kee-199')).toBe('key-199');
    for (let n = 0; n < 1000; n += 1) keyList(keys, `wrong-${n}`);
    expect([first('kee-198'), first('kee-199')]).toEqual(['key-100', 'key-199']);
  });

  test('report issues of all kinds at once, in the order of the file', () => {
    const text = [
      'workers: 0',
      'listen: { port: 99999, address: 0.0.0.0 }',
      'anonymous: true',
      withMore('timeouts: { idle: 0s }', 'tsl: {}').replace('credential: a', 'credential: nobody'),
    ].join('\n');
    expect(issueLines(text).map((line) => line.split(': ')[0])).toEqual([
      'c.yaml:1:10 workers',
      'c.yaml:2:17 listen.port',
      'c.yaml:3:12 anonymous',
      'c.yaml:9:17 deployments.d.credential',
      'c.yaml:10:23 deployments.d.timeouts.idle',
      'c.yaml:11:5 deployments.d.tsl',
    ]);
  });
});
