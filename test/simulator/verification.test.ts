import { readFileSync } from 'node:fs';
import { describe, expect, test } from '@jest/globals';
import { algorithmNames } from '../../src/simulator/settings.ts';
import {
  Accounts,
  type Credentials,
  type DigestFault,
  digestOf,
  type HashName,
  hashOf,
  type Proof,
  readAuthorization,
  verify,
} from '../../src/simulator/verification.ts';
import { cpuMeter } from '../support/measure.ts';

interface Vector {
  id: string;
  kind: string;
  title: string;
  challenge: string[];
  request: { method: string; uri: string; body_b64: string | null };
  credentials: { username: string; password: string };
  expect: { authorization_example: string; params: Record<string, { value: string }> };
}

const file = new URL('../vectors/digest-vectors.json', import.meta.url);
const { vectors } = JSON.parse(readFileSync(file, 'utf8')) as { vectors: Vector[] };
const single = vectors.filter(({ kind }) => kind === 'single');

function check(
  vector: Vector,
  header: string,
  change: { target?: string } = {},
): Promise<Proof | DigestFault> {
  const credentials = readAuthorization(header) as Credentials;
  const realm = vector.expect.params['realm']?.value ?? '';
  const { qop } = Object.fromEntries(credentials.parameters);
  return verify(credentials, {
    method: vector.request.method,
    target: change.target ?? vector.request.uri,
    realm,
    accounts: new Accounts(
      [{ ...vector.credentials, sites: [] }],
      Buffer.from(realm, 'latin1').toString('utf8'),
    ),
    qop: qop === undefined ? [] : ['auth', 'auth-int'],
    algorithms: algorithmNames,
    userhash: true,
    bodyHash: async (hash: HashName) =>
      hashOf(hash, Buffer.from(vector.request.body_b64 ?? '', 'base64').toString('latin1')),
  });
}

describe('the verification accepts what independent programs answered', () => {
  test('there are vectors', () => expect(single.length).toBeGreaterThan(60));

  test.each(single)('$id: $title', async (vector) => {
    const header = vector.expect.authorization_example;
    expect(await check(vector, header)).toHaveProperty('nonce');

    const flipped = header.replace(/response="(.)/, (_, first) => `response="${first === '0' ? '1' : '0'}`);
    expect(await check(vector, flipped)).toBe('wrong-response');
    expect(await check(vector, header, { target: `${vector.request.uri}#` })).toBe('uri');
  });
});

describe('the verification refuses', () => {
  const vector = single.find(({ id }) => id === 'rfc2617-3.5') as Vector;
  const header = vector.expect.authorization_example;

  test.each([
    [
      'a response in upper case',
      header.replace(/response="(\w+)"/, (text) => text.toUpperCase().replace('RESPONSE', 'response')),
      'wrong-response',
    ],
    ['no response', header.replace(/, response="\w+"/, ''), 'malformed'],
    ['no nonce', header.replace(/nonce="\w+", uri/, 'uri'), 'malformed'],
    ['another realm', header.replace('testrealm', 'Testrealm'), 'realm'],
    ['another nonce', header.replace('nonce="d', 'nonce="e'), 'wrong-response'],
    ['another user', header.replace('Mufasa', 'Scar'), 'unknown-user'],
    ['both forms of the user name', `${header}, username*=UTF-8''Mufasa`, 'unknown-user'],
    ['an unknown algorithm', `${header}, algorithm=SHA-1`, 'algorithm'],
    ['an algorithm that was not used', `${header}, algorithm=SHA-256`, 'wrong-response'],
    ['an unknown qop', header.replace('qop=auth', 'qop=auth-conf'), 'qop'],
    ['the other qop', header.replace('qop=auth', 'qop=auth-int'), 'wrong-response'],
    ['nc of seven digits', header.replace('nc=0', 'nc='), 'malformed'],
    ['nc that is not hex', header.replace('nc=00000001', 'nc=0000000g'), 'malformed'],
    ['no cnonce', header.replace('cnonce="0a4f113b", ', ''), 'malformed'],
    ['nc without qop', header.replace('qop=auth, ', ''), 'malformed'],
  ])('%s', async (_, changed, fault) => {
    expect(changed).not.toBe(header);
    expect(await check(vector, changed)).toBe(fault);
  });

  test('an answer without qop where one was offered', async () => {
    const old = single.find(({ id }) => id === 'rfc2069-2.4-corrected') as Vector;
    const credentials = readAuthorization(old.expect.authorization_example) as Credentials;
    const expected = {
      method: 'GET',
      target: old.request.uri,
      realm: 'testrealm@host.com',
      accounts: new Accounts([{ ...old.credentials, sites: [] }], 'testrealm@host.com'),
      algorithms: algorithmNames,
      userhash: false,
      bodyHash: async () => '',
    };
    expect(await verify(credentials, { ...expected, qop: ['auth'] })).toBe('qop');
    expect(await verify(credentials, { ...expected, qop: [] })).toHaveProperty('nonce');
  });
});

test('the proof of the server is the one of the vectors', async () => {
  const proofs = (vectors as (Vector & { authentication_info: string })[]).filter(
    ({ kind, id }) => kind === 'rspauth' && id === 'rsp-md5-ok',
  );
  for (const vector of proofs) {
    const proof: Proof = {
      account: { sites: new Set(), secretHashes: () => [] },
      hash: 'md5',
      secretHash: hashOf('md5', 'alice', 'Protected Area', 'pw'),
      nonce: 'MTc2NzIyNTYwMDphYmNk',
      uri: vector.request.uri,
      count: { qop: 'auth', nc: '00000001', cnonce: 'rc' },
    };
    expect(vector.authentication_info).toContain(digestOf(proof, '', undefined));
  }
  expect(proofs).toHaveLength(1);
});

const read = (text: string) => {
  const credentials = readAuthorization(text);
  return credentials && { scheme: credentials.scheme, ...Object.fromEntries(credentials.parameters) };
};

describe('an Authorization header', () => {
  test.each([
    ['bare and quoted values', 'Digest a=1, B="two"', { scheme: 'digest', a: '1', b: 'two' }],
    ['escapes', String.raw`Digest a="x\"y\\z"`, { scheme: 'digest', a: String.raw`x"y\z` }],
    ['delimiters within quotes', 'Digest a="x, b=y", c=z', { scheme: 'digest', a: 'x, b=y', c: 'z' }],
    ['no blanks, and too many', 'dIGEST\ta = 1,b="2" ,, c=3 ,', { scheme: 'digest', a: '1', b: '2', c: '3' }],
    ['an empty value', 'Digest a="", b=2', { scheme: 'digest', a: '', b: '2' }],
    [
      'an extended value',
      "Digest username*=UTF-8''J%C3%A4s",
      { scheme: 'digest', 'username*': "UTF-8''J%C3%A4s" },
    ],
    ['a scheme alone', 'Digest', { scheme: 'digest' }],
    ['another scheme', 'Basic YTpi', { scheme: 'basic' }],
    ['a parameter twice', 'Digest a=1, A=2', undefined],
    ['an open quote', 'Digest a="1', undefined],
    ['an open escape', 'Digest a="1\\', undefined],
    ['no comma', 'Digest a="1" b="2"', undefined],
    ['no name', 'Digest ="1"', undefined],
    ['no value', 'Digest a', undefined],
  ])('%s', (_, text, expected) => {
    expect(read(text)).toEqual(expected);
  });

  test.each([',', '"', '\\', 'a=1,', ' ', 'a="\\"'])('%j again and again is read in no time', (part) => {
    const cpuMs = cpuMeter();
    for (const text of [part.repeat(30_000 / part.length), part.repeat(1_000_000)])
      readAuthorization(`Digest ${text}`);
    expect(cpuMs()).toBeLessThan(500);
  });
});
