import { describe, expect, test } from '@jest/globals';
import { parseConfig } from '../support/parsed-config.ts';
import { type Case, expectIssues, served } from './issue-lines.ts';
import { DEPLOYMENTS } from './texts.ts';

const withCredential = (content: string, more = '') =>
  `credentials:\n  a: { username: { env: U }, ${content} }\n${DEPLOYMENTS}${more}`;
const withSealed = (content: string) => withCredential('password: { sealed: a }', `\nsealed: ${content}`);

test('keeps every source of a credential', () => {
  const { credentials, sealed } = parseConfig(
    served(
      withCredential(
        'ha1: { realm: "r r", md5: { sealed: a.b-c_1 }, sha256: { file: k, readableByOthers: true }, sha512-256: { env: H } }, next: { username: { env: V }, password: { file: p } }',
        '\nsealed: { file: s.age, identity: { file: id, readableByOthers: true } }',
      ),
    ),
    '/srv/c.yaml',
  );
  expect(credentials['a']).toEqual({
    username: { env: 'U' },
    ha1: {
      realm: 'r r',
      md5: { sealed: 'a.b-c_1' },
      sha256: { file: '/srv/k', readableByOthers: true },
      'sha512-256': { env: 'H' },
    },
    next: { username: { env: 'V' }, password: { file: '/srv/p' } },
  });
  expect(sealed).toEqual({ file: '/srv/s.age', identity: { file: '/srv/id', readableByOthers: true } });
});

const P = 'password: { env: P }';
const BOTH = 'has password and ha1: keep one of the two';

const issues: Case[] = [
  [
    'password and ha1',
    withCredential(`${P}, ha1: { realm: r, md5: { env: H } }`),
    [`2:6 credentials.a: ${BOTH}`],
  ],
  [
    'neither',
    withCredential('next: { password: { env: P } }'),
    ['2:6 credentials.a: has no password: give password, or ha1 with a hash of it'],
  ],
  [
    'ha1 without hash',
    withCredential('ha1: { realm: r }'),
    ['2:35 credentials.a.ha1: has no hash: give at least one of md5, sha256 and sha512-256'],
  ],
  [
    'ha1 without realm',
    withCredential('ha1: { md5: { env: H } }'),
    ['2:30 credentials.a.ha1.realm: is missing: give the realm of the challenge, as text in quotes'],
  ],
  [
    'ha1 of an algorithm that does not exist',
    withCredential('ha1: { realm: r, md5: { env: H }, sha1: { env: H } }'),
    ['2:64 credentials.a.ha1: a key here does not exist: there are realm, md5, sha256, sha512-256'],
  ],
  [
    'next with both',
    withCredential(`${P}, next: { ${P}, ha1: { realm: r, md5: { env: H } } }`),
    [`2:58 credentials.a.next: ${BOTH}`],
  ],
  [
    'next that says nothing',
    withCredential(`${P}, next: {}`),
    ['2:58 credentials.a.next: is empty: give username, password or ha1, as far as they differ'],
  ],
  [
    'readableByOthers without file',
    withCredential('password: { env: P, readableByOthers: true }'),
    ['2:40 credentials.a.password: has readableByOthers without file: leave it out'],
  ],
  [
    'a sealed secret with a name that is no word',
    withCredential('password: { sealed: "a b" }'),
    ['2:50 credentials.a.password.sealed: must be the name of an entry of the sealed file'],
  ],
  [
    'sealed without identity',
    withSealed('{ file: s.age }'),
    ['4:1 sealed.identity: is missing: give a mapping: { env: NAME } or { file: NAME }'],
  ],
  ...['{ value: "AGE-SECRET-KEY-1" }', '{ sealed: a }'].map(
    (identity): Case => [
      `sealed with the identity ${identity}`,
      withSealed(`{ file: s.age, identity: ${identity} }`),
      ['4:34 sealed.identity: must come from env or file: it opens everything else'],
    ],
  ),
];

describe('credentials and the sealed file', () => {
  test.each(issues)('reports %s', (_title, text, lines) => {
    expectIssues(text, lines);
  });
});
