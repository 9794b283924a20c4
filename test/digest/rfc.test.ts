import { expect, test } from '@jest/globals';
import { Secret } from '../../src/base/secret.ts';
import type { AlgorithmName } from '../../src/digest/algorithms.ts';
import { prepareAnswer } from '../../src/digest/authorization.ts';
import { chooseChallenge, parseChallenges } from '../../src/digest/challenge.ts';
import { readAuthorization } from './authorization-reader.ts';

interface Example {
  readonly challenges: readonly string[];
  readonly allowed: readonly AlgorithmName[];
  readonly username: string;
  readonly password: string;
  readonly cnonce: string;
  readonly uri: string;
}

/** The parameters of the answer, by name. */
function answer({ challenges, allowed, username, password, cnonce, uri }: Example): Record<string, string> {
  const chosen = chooseChallenge(parseChallenges(challenges), allowed);
  if (chosen === undefined) throw new Error('no challenge chosen');
  const prepared = prepareAnswer(chosen, { username, password: new Secret(password) }, cnonce);
  const read = readAuthorization(prepared.authorize({ method: 'GET', uri, nc: 1 }));
  return Object.fromEntries([...read].map(([name, { value }]) => [name, value]));
}

test('RFC 2617 §3.5', () => {
  const values = answer({
    challenges: [
      'Digest realm="testrealm@host.com", qop="auth,auth-int", ' +
        'nonce="dcd98b7102dd2f0e8b11d0f600bfb0c093", opaque="5ccc069c403ebaf9f0171e9517f40e41"',
    ],
    allowed: ['MD5'],
    username: 'Mufasa',
    password: 'Circle Of Life',
    cnonce: '0a4f113b',
    uri: '/dir/index.html',
  });
  expect(values).toEqual({
    username: 'Mufasa',
    realm: 'testrealm@host.com',
    nonce: 'dcd98b7102dd2f0e8b11d0f600bfb0c093',
    uri: '/dir/index.html',
    qop: 'auth',
    nc: '00000001',
    cnonce: '0a4f113b',
    response: '6629fae49393a05397450978507c4ef1',
    opaque: '5ccc069c403ebaf9f0171e9517f40e41',
  });
});

test.each<[AlgorithmName, string]>([
  ['SHA-256', '753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1'],
  ['MD5', '8ca523f5e9506fed4657c9700eebdbec'],
])('RFC 7616 §3.9.1 with %s', (algorithm, response) => {
  const line = (name: string) =>
    `Digest realm="http-auth@example.org", qop="auth, auth-int", algorithm=${name}, ` +
    'nonce="7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v", opaque="FQhe/qaU925kfnzjCev0ciny7QMkPqMAFRtzCUYo5tdS"';
  const values = answer({
    challenges: [line('SHA-256'), line('MD5')],
    allowed: [algorithm],
    username: 'Mufasa',
    password: 'Circle of Life',
    cnonce: 'f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ',
    uri: '/dir/index.html',
  });
  expect(values).toMatchObject({ algorithm, response });
});

test('RFC 7616 §3.9.2 with the true SHA-512/256 and userhash', () => {
  const values = answer({
    challenges: [
      'Digest realm="api@example.org", qop="auth", algorithm=SHA-512-256, ' +
        'nonce="5TsQWLVdgBdmrQ0XsxbDODV+57QdFR34I9HAbC/RVvkK", ' +
        'opaque="HRPCssKJSGjCrkzDg8OhwpzCiGPChXYjwrI2QmXDnsOS", charset=UTF-8, userhash=true',
    ],
    allowed: ['SHA-512-256'],
    username: 'Jäsøn Doe',
    password: 'Secret, or not?',
    cnonce: 'NTg6RKcb9boFIAS3KrFK9BGeh+iDa/sm6jUMp2wds69v',
    uri: '/doe.json',
  });
  expect(values).toMatchObject({
    algorithm: 'SHA-512-256',
    userhash: 'true',
    username: '793263caabb707a56211940d90411ea4a575adeccb7e360aeb624ed06ece9b0b',
    response: '3798d4131c277846293534c3edc11bd8a5e4cdcbff78b05db9d95eeb1cec68a5',
  });
  // Printed in the RFC, from a SHA-512 cut to half.
  expect(values['username']).not.toBe('488869477bf257147b804c45308cd62ac4e25eb717b12b298c79e62dcea254ec');
  expect(values['response']).not.toBe('ae66e67d6b427bd3f120414a82e4acff38e8ecd9101d6c861229025f607a79dd');
  // Erratum 4897 hashes the hashed name into A1; deployed servers keep the plain one.
  expect(values['response']).not.toBe('fc3b8f9d45be46bc9c1b0778d5eec8dfb08ebb17680ff6704b33af4056155ac4');
});
