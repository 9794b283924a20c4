import { describe, test } from '@jest/globals';
import { type Case, expectIssues } from './issue-lines.ts';
import { CREDENTIALS, DEPLOYMENTS, withMore } from './texts.ts';

const RIGHT = `${CREDENTIALS}\n${DEPLOYMENTS}`;
const withCredential = (content: string) => `credentials:\n  a: ${content}\n${DEPLOYMENTS}`;

const unknown: Case[] = [
  ['at the top', `${RIGHT}\nlistne: {}`, ['3:1 listne: does not exist: the nearest key is listen']],
  [
    'that would merge another mapping',
    withCredential('{ <<: { username: { env: U } }, username: { env: U }, password: { env: P } }'),
    ['2:8 credentials.a: a key here does not exist: merge keys are not read, so write the keys out'],
  ],
  [
    'in a section',
    `${RIGHT}\nlisten: { adress: x }`,
    ['3:11 listen.adress: does not exist: the nearest key is address'],
  ],
  [
    'in a deployment',
    withMore('timeout: {}', 'Digest: {}', 'site: {}'),
    [
      '7:5 deployments.d.timeout: does not exist: the nearest key is timeouts',
      '8:5 deployments.d.Digest: does not exist: the nearest key is digest',
      '9:5 deployments.d.site: does not exist: the nearest key is sites',
    ],
  ],
  [
    'in each section of a deployment',
    withMore(
      'digest: { algorithm: MD5 }',
      'tls: { ca: x }',
      'timeouts: { connection: 1s }',
      'body: { maximum: 1 }',
      'egress: { address: 10.0.0.1, proxy: { uri: x } }',
    ),
    [
      '7:15 deployments.d.digest.algorithm: does not exist: the nearest key is algorithms',
      '8:12 deployments.d.tls.ca: does not exist: the nearest key is caFile',
      '9:17 deployments.d.timeouts.connection: does not exist: the nearest key is connect',
      '10:13 deployments.d.body.maximum: does not exist: the nearest key is max',
      '11:15 deployments.d.egress.address: does not exist: the nearest key is localAddress',
      '11:34 deployments.d.egress.proxy.url: is missing: give the scheme, host and port of a proxy, such as http://proxy.internal:3128 or https://proxy.internal:3129',
      '11:43 deployments.d.egress.proxy.uri: does not exist: the nearest key is url',
    ],
  ],
  [
    'that is a part of another',
    `${RIGHT}\ncontrol: { token: x }`,
    ['3:12 control.token: does not exist: the nearest key is tokenSha256'],
  ],
  [
    'and is like no other',
    withMore('tls: { verify: false }'),
    [
      '7:12 deployments.d.tls.verify: does not exist: there are caFile, pinSha256, serverName, certFile, keyFile, keyPassphrase, minVersion, allowPlaintext',
    ],
  ],
  [
    'in an operation',
    withMore('operations: { o: { methode: GET, method: GET, path: /a } }'),
    ['7:24 deployments.d.operations.o.methode: does not exist: the nearest key is method'],
  ],
  [
    'in a mapping that has a short form',
    withMore('tls: { keyFile: { file: k, readableByOthers: true, fil: 1 }, certFile: c }'),
    ['7:56 deployments.d.tls.keyFile.fil: does not exist: the nearest key is file'],
  ],
  [
    'with a blank in a part of the only listener',
    `${RIGHT}\nlisten: { limits: { "we ird": 1 } }`,
    [
      '3:21 listen.limits["we ird"]: does not exist: there are headerSize, headersTimeout, keepAliveTimeout, connections, connectionsPerAddress, bodyMemory',
    ],
  ],
  [
    'in a rule of a client',
    `${RIGHT}\nclients: [{ id: c, allow: [{ deployment: d, site: [x], parameters: { ids: { min: 1 } } }], identify: { addresses: [10.0.0.1] } }]`,
    [
      '3:45 clients[0].allow[0].site: does not exist: the nearest key is sites',
      '3:75 clients[0].allow[0].parameters.ids: has neither max nor values: give at least one, or leave the parameter out',
      '3:77 clients[0].allow[0].parameters.ids.min: does not exist: there are max, values',
    ],
  ],
  [
    'with an odd name',
    `${RIGHT}\n"li sten": {}`,
    ['3:1 ["li sten"]: does not exist: the nearest key is listen'],
  ],
  [
    'with the name of a prototype',
    `${RIGHT}\n__proto__: {}`,
    [
      '3:1 __proto__: does not exist: there are include, listen, workers, control, log, drain, readiness, redis, audit, clients, jwt, anonymous, sealed, credentials, deployments',
    ],
  ],
];

const secret: Case[] = [
  [
    'a wrong key in a credential',
    withCredential('{ username: { env: U }, pasword: { env: P } }'),
    [
      '2:6 credentials.a: has no password: give password, or ha1 with a hash of it',
      '2:30 credentials.a: a key here does not exist: the nearest key is password',
    ],
  ],
  [
    'a password where its source belongs',
    withCredential('{ username: { env: U }, password: hunter2 }'),
    [
      '2:40 credentials.a.password: must be a mapping: { env: NAME }, { file: NAME }, { sealed: NAME } or { value: TEXT }',
    ],
  ],
  [
    'a password as a key',
    withCredential('{ username: { env: U }, password: { hunter2 } }'),
    [
      '2:40 credentials.a.password: has no source: give exactly one of env, file, sealed and value',
      '2:42 credentials.a.password: a key here does not exist: there are env, file, readableByOthers, sealed, value',
    ],
  ],
  [
    'a password without quotes that is a number',
    withCredential('{ username: { env: U }, password: { value: 123456 } }'),
    ['2:49 credentials.a.password.value: must be text in quotes'],
  ],
  [
    'a password as the name of a variable',
    withCredential('{ username: { env: U }, password: { env: "hunter 2" } }'),
    ['2:47 credentials.a.password.env: must be the name of an environment variable'],
  ],
  [
    'two sources',
    withCredential('{ username: { env: U }, password: { value: hunter2, env: P } }'),
    [
      '2:40 credentials.a.password: has more than one source: give exactly one of env, file, sealed and value',
    ],
  ],
  [
    'a passphrase as a key',
    withMore('tls: { certFile: c, keyFile: k, keyPassphrase: { hunter2 } }'),
    [
      '7:52 deployments.d.tls.keyPassphrase: has no source: give exactly one of env, file, sealed and value',
      '7:54 deployments.d.tls.keyPassphrase: a key here does not exist: there are env, file, readableByOthers, sealed, value',
    ],
  ],
  [
    'no source',
    withCredential('{ username: {}, password: { env: P } }'),
    ['2:18 credentials.a.username: has no source: give exactly one of env, file, sealed and value'],
  ],
];

describe('keys', () => {
  test.each(unknown)('reports one that does not exist %s', (_title, text, lines) => {
    expectIssues(text, lines);
  });
});

describe('credentials', () => {
  test.each(secret)('reports %s without quoting it', (_title, text, lines) => {
    expectIssues(text, lines);
  });
});

describe('keys', () => {});
