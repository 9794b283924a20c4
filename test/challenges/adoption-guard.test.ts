import { expect, test } from '@jest/globals';
import { Secret } from '../../src/base/secret.ts';
import { AdoptionGuard } from '../../src/challenges/shared-challenges.ts';
import type { AlgorithmName } from '../../src/digest/algorithms.ts';
import type { Credential } from '../../src/digest/authorization.ts';
import { type Challenge, parseChallenges } from '../../src/digest/challenge.ts';

const username = 'me';
const password = { username, password: new Secret('x') };

function challengeIn(realm: string, more = ''): Challenge {
  const [challenge] = parseChallenges([`Digest realm="${realm}", nonce="n"${more}`]);
  if (challenge === undefined) throw new Error('no challenge');
  return challenge;
}

function guardFor(credential: Credential, algorithms: readonly AlgorithmName[] = ['MD5']) {
  const time = { now: 0 };
  return { time, guard: new AdoptionGuard({ credential, algorithms, clock: { now: () => time.now } }) };
}

test('uses only what the credential, a stored hash, is good for', () => {
  const hashes = { MD5: new Secret('0'.repeat(32)) };
  const fits = (credential: Credential) => guardFor(credential).guard.fits(challengeIn('r'));
  expect(fits(password)).toBe(true);
  expect(fits({ username, ha1: { realm: 'r', hashes } })).toBe(true);
  expect(fits({ username, ha1: { realm: 'other', hashes } })).toBe(false);
  expect(fits({ username, ha1: { realm: 'r', hashes: {} } })).toBe(false);
});

test('uses only the algorithms of the deployment', () => {
  const { guard } = guardFor(password, ['SHA-256']);
  expect(guard.fits(challengeIn('r'))).toBe(false);
  expect(guard.fits(challengeIn('r', ', algorithm=SHA-256'))).toBe(true);
  expect(guard.fits(challengeIn('r', ', algorithm=SHA-256-sess, qop="auth"'))).toBe(true);
});

test('uses only the realm that the upstream has, once it is known', () => {
  const { guard } = guardFor(password);
  expect(guard.fits(challengeIn('other'))).toBe(true);
  guard.issued(challengeIn('r'));
  expect([guard.fits(challengeIn('other')), guard.fits(challengeIn('r'))]).toEqual([false, true]);
});

test('pauses after three refused nonces in a row, longer each time, until one is accepted', () => {
  const { guard, time } = guardFor(password);
  const refuse = (): boolean => {
    guard.refused();
    return guard.paused;
  };
  expect([refuse(), refuse(), refuse()]).toEqual([false, false, true]);
  time.now += 10_000;
  expect(guard.paused).toBe(false);
  expect(refuse()).toBe(true);
  time.now += 19_999;
  expect(guard.paused).toBe(true);
  time.now += 1;
  expect(guard.paused).toBe(false);
  for (let count = 0; count < 1_100; count += 1) guard.refused();
  time.now += 300_000;
  expect(guard.paused).toBe(false);
  guard.accepted();
  expect([refuse(), refuse()]).toEqual([false, false]);
});
