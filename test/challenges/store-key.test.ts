import { expect, test } from '@jest/globals';
import { type ChallengeKey, serializeKey } from '../../src/challenges/store/store.ts';

const key: ChallengeKey = {
  deployment: 'd',
  origin: 'o',
  credential: 'c',
  credentialVersion: 'v',
  egressAddress: 'e',
  trust: 't',
};
const parts = Object.keys(key) as (keyof ChallengeKey)[];

test('keys that differ in any part are different', () => {
  const keys = [key, ...parts.map((part) => ({ ...key, [part]: '' }))].map(serializeKey);
  expect(new Set(keys).size).toBe(1 + parts.length);
  expect(serializeKey({ ...key })).toBe(serializeKey(key));
});

test('characters that move from one part to the next make another key', () => {
  for (const between of ['', ',', '","', '"', ' ', '\n']) {
    const one = serializeKey({ ...key, deployment: `a${between}b`, origin: 'c' });
    const other = serializeKey({ ...key, deployment: 'a', origin: `b${between}c` });
    expect(one).not.toBe(other);
  }
});
