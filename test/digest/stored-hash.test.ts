import { createHash } from 'node:crypto';
import { describe, expect, test } from '@jest/globals';
import { GatewayError } from '../../src/base/errors.ts';
import { Secret } from '../../src/base/secret.ts';
import type { AlgorithmName } from '../../src/digest/algorithms.ts';
import { type Credential, canAnswer, chooseFor, prepareAnswer } from '../../src/digest/authorization.ts';
import { type Challenge, parseChallenges } from '../../src/digest/challenge.ts';
import { readVectors } from './vectors.ts';

const NAMES = { MD5: 'md5', 'SHA-256': 'sha256', 'SHA-512-256': 'sha512-256' } as const;
const ALL = Object.keys(NAMES) as AlgorithmName[];

/** The hash that a user of `ha1` makes once from the password, which is not stored. */
function stored(
  { username, password }: { username: string; password: string },
  realm: Buffer,
  algorithms: readonly AlgorithmName[] = ALL,
): Credential {
  const bytes = [
    Buffer.from(`${username.normalize('NFC')}:`),
    realm,
    Buffer.from(`:${password.normalize('NFC')}`),
  ];
  const hashes = algorithms.map((name) => {
    const hex = createHash(NAMES[name]).update(Buffer.concat(bytes)).digest('hex');
    return [name, new Secret(hex)] as const;
  });
  return { username, ha1: { realm: realm.toString(), hashes: Object.fromEntries(hashes) } };
}

function challenge(algorithm: string, realm = 'r'): Challenge {
  const [parsed] = parseChallenges([
    `Digest realm="${realm}", nonce="n", qop="auth", algorithm=${algorithm}`,
  ]);
  if (parsed === undefined) throw new Error('no challenge');
  return parsed;
}

const me = { username: 'me', password: 'hunter2' };
const fromPassword: Credential = { username: 'me', password: new Secret('hunter2') };
const request = { method: 'GET', uri: '/', nc: 1 };

function refusal(credential: Credential, asked: Challenge): GatewayError {
  try {
    prepareAnswer(asked, credential, 'c');
  } catch (error) {
    if (error instanceof GatewayError) return error;
    throw error;
  }
  throw new Error('answered');
}

describe('a stored hash answers as the password does', () => {
  const singles = readVectors().filter((vector) => vector.kind === 'single');

  test.each(singles)('$id', (vector) => {
    const chosen = chooseFor(fromPassword, parseChallenges(vector.challenge), ALL);
    if (chosen === undefined) throw new Error('no challenge chosen');
    const credential = stored(vector.credentials, Buffer.from(chosen.realm, 'latin1'));
    const { method, uri } = vector.request;
    const nc = vector.client.nc ?? 1;
    const answer = prepareAnswer(chosen, credential, vector.client.cnonce ?? 'unused');
    if (vector.request.body_b64 !== null) return expect(answer.qop ?? null).toBe(vector.expect.qop);
    return expect(answer.authorize({ method, uri, nc })).toContain(`response="${vector.expect.response}"`);
  });

  test('to a realm that is sent as Latin-1, too', () => {
    const realm = Buffer.from('Büro', 'latin1');
    const asked = challenge('MD5', realm.toString('latin1'));
    const credential = { username: 'me', ha1: { ...hashedOf(stored(me, realm)), realm: 'Büro' } };
    expect(prepareAnswer(asked, credential, 'c').authorize(request)).toBe(
      prepareAnswer(asked, fromPassword, 'c').authorize(request),
    );
  });
});

describe('a stored hash that does not fit', () => {
  test('another realm', () => {
    const error = refusal(stored(me, Buffer.from('r')), challenge('MD5', 'R'));
    expect([error.code, error.kind.status]).toEqual(['credential-unavailable', 503]);
    expect(error.detail).toMatch(/^(?!.*\bMD5\b).*\brealm\b.*\bha1\b/);
  });

  test.each(['SHA-256', 'SHA-256-sess'])('an algorithm without hash: %s', (algorithm) => {
    const error = refusal(stored(me, Buffer.from('r'), ['MD5']), challenge(algorithm));
    expect(error.code).toBe('credential-unavailable');
    expect(error.detail).toMatch(/\bSHA-256\b.*\bha1\b/);
  });

  test('the refusal quotes neither realm nor hash', () => {
    const error = refusal(stored(me, Buffer.from('r3alm')), challenge('MD5', '0ther'));
    expect(`${error.stack}`).not.toMatch(/r3alm|0ther|[0-9a-f]{32}/);
  });
});

test('a password is good for every challenge, a hash for its realm and algorithm', () => {
  expect(canAnswer(challenge('SHA-256'), fromPassword)).toBe(true);
  const hashed = stored(me, Buffer.from('r'), ['MD5']);
  expect(
    [challenge('MD5'), challenge('SHA-256'), challenge('MD5', 'R')].map((asked) => canAnswer(asked, hashed)),
  ).toEqual([true, false, false]);
});

describe('the challenge that is chosen', () => {
  const offered = [challenge('SHA-256'), challenge('MD5')];
  const chosen = (credential: Credential, allowed: readonly AlgorithmName[] = ALL) =>
    chooseFor(credential, offered, allowed)?.algorithm.name;

  test('is the strongest, with a password', () => expect(chosen(fromPassword)).toBe('SHA-256'));

  test('is one that there is a hash for', () => {
    expect(chosen(stored(me, Buffer.from('r'), ['MD5']))).toBe('MD5');
    expect(chosen(stored(me, Buffer.from('r')))).toBe('SHA-256');
  });

  test('is the strongest if there is a hash for none, so that the refusal can say so', () => {
    expect(chosen(stored(me, Buffer.from('r'), ['SHA-512-256']))).toBe('SHA-256');
  });

  test('is never one that is not allowed', () => {
    expect(chosen(stored(me, Buffer.from('r'), ['MD5']), ['SHA-512-256'])).toBeUndefined();
    expect(chosen(stored(me, Buffer.from('r'), ['MD5']), ['SHA-256'])).toBe('SHA-256');
  });
});

function hashedOf(credential: Credential) {
  if ('ha1' in credential) return credential.ha1;
  throw new TypeError('a password');
}
