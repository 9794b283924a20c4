import { expect, test } from '@jest/globals';
import { Secret } from '../../src/base/secret.ts';
import { NonceMaker } from '../../src/challenges/nonce-maker.ts';
import type { Credential } from '../../src/digest/authorization.ts';
import { parseChallenges } from '../../src/digest/challenge.ts';

function adopted(credential: Credential): string | undefined {
  const [challenge] = parseChallenges(['Digest realm="r", nonce="n"']);
  if (challenge === undefined) throw new Error('no challenge');
  const maker = new NonceMaker({
    credential,
    clock: { now: () => 0 },
    newCnonce: () => 'c',
    wallTime: () => 0,
  });
  return maker.adopted({ challenge, cookies: [], ageMs: 0 })?.challenge.nonce;
}

test("another process's challenge is left alone when the stored hash is not good for it", () => {
  const hashes = { MD5: new Secret('0'.repeat(32)) };
  const username = 'me';
  expect(adopted({ username, password: new Secret('x') })).toBe('n');
  expect(adopted({ username, ha1: { realm: 'r', hashes } })).toBe('n');
  expect(adopted({ username, ha1: { realm: 'other', hashes } })).toBeUndefined();
  expect(adopted({ username, ha1: { realm: 'r', hashes: {} } })).toBeUndefined();
});
