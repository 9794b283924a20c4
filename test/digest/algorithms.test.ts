import { describe, expect, test } from '@jest/globals';
import { type AlgorithmName, bodyHash, findAlgorithm, hash, strength } from '../../src/digest/algorithms.ts';

/** RFC 1321 A.5, FIPS 180-4 examples. */
const ABC: Record<AlgorithmName, string> = {
  MD5: '900150983cd24fb0d6963f7d28e17f72',
  'SHA-256': 'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad',
  'SHA-512-256': '53048e2681941ef99b2e29b76b4c7dabe4c2d0c634fc6d46e0e2f13107e7af23',
};
const names: AlgorithmName[] = ['MD5', 'SHA-256', 'SHA-512-256'];

describe.each(names)('%s', (name) => {
  test('hashes the published example, in whole or in parts', () => {
    expect(hash(name, 'abc')).toBe(ABC[name]);
    expect(hash(name, Buffer.from('abc'))).toBe(ABC[name]);
    const running = bodyHash(name);
    running.update(Buffer.from('a'));
    running.update(Buffer.from('bc'));
    expect(running.digest()).toBe(ABC[name]);
  });

  test('takes text as Latin-1 bytes', () => {
    expect(hash(name, 'caf\xe9')).toBe(hash(name, Buffer.from([0x63, 0x61, 0x66, 0xe9])));
  });

  test('is found in any case, with and without -sess', () => {
    expect(findAlgorithm(name.toLowerCase())).toEqual({ name, session: false, token: name });
    expect(findAlgorithm(`${name}-SESS`)).toEqual({ name, session: true, token: `${name}-sess` });
  });
});

test.each(['', 'SHA', 'SHA-512', 'SHA-512/256', 'MD5 ', 'MD5-sess-sess', 'toString', '__proto__'])(
  '%j is no algorithm',
  (token) => {
    expect(findAlgorithm(token)).toBeUndefined();
  },
);

test('strength orders them', () => {
  expect([...names].reverse().sort((one, other) => strength(one) - strength(other))).toEqual(names);
});
