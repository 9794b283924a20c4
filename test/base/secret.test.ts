import { inspect } from 'node:util';
import { expect, test } from '@jest/globals';
import { Secret } from '../../src/base/secret.ts';

test('a secret shows in no text but its own', () => {
  const secret = new Secret('s3cr3t');
  const texts = [String(secret), `${secret}`, JSON.stringify({ secret }), inspect({ secret }, { depth: 9 })];
  texts.push(
    inspect(secret, { showHidden: true }),
    new Error(`with ${secret}`).message,
    Object.keys(secret).join(),
  );
  expect(texts.filter((text) => text.includes('s3cr3t'))).toEqual([]);
  expect(secret.reveal()).toBe('s3cr3t');
});
