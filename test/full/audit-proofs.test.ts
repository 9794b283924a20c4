import { expect, test } from '@jest/globals';
import { checkProofs } from '../audit/many-proofs.ts';
import { newSigningKey } from '../support/signing-key.ts';

test('10,000 proofs are accepted, and none with a changed field', () => {
  expect(checkProofs(newSigningKey(), 10_000)).toEqual([]);
});
