import { expect, test } from '@jest/globals';
import { expiryHint } from '../../src/challenges/nonce-factory.ts';

const now = Date.UTC(2026, 10, 21);
const base64 = (text: string): string => Buffer.from(text, 'latin1').toString('base64');

test.each([
  ['milliseconds ahead in base64', base64(`${now + 300_000}:0f1e2d`), 300_000],
  ['seconds ahead in the open', `${now / 1000 + 60}:0f1e2d:x`, 60_000],
  ['the time of issue and the expiry', base64(`${now}:${now + 5_000}:0f1e2d`), 5_000],
  ['the time of issue only', base64(`${now - 1}:0f1e2d`), undefined],
  ['a number too far ahead', `${now + 48 * 3_600_000}`, undefined],
  ['digits within a longer hash', `ab${now + 5_000}cd`, undefined],
  ['no number', 'dcd98b7102dd2f0e8b11d0f600bfb0c093', undefined],
])('a nonce that carries %s', (_title, nonce, expected) => {
  expect(expiryHint(nonce, now)).toBe(expected);
});
