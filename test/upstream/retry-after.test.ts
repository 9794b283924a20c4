import { expect, test } from '@jest/globals';
import { retryAfterMs } from '../../src/upstream/outcomes.ts';

const NOW = Date.UTC(1994, 10, 6, 8, 49, 0);
const HOUR = 3_600_000;

test.each<[string, number | undefined]>([
  ['120', 120_000],
  ['0', 0],
  ['007', 7000],
  ['3601', HOUR],
  ['9'.repeat(400), HOUR],
  ['Sun, 06 Nov 1994 08:49:37 GMT', 37_000],
  ['Sunday, 06-Nov-94 08:49:37 GMT', 37_000],
  ['Sun Nov  6 08:49:37 1994', 37_000],
  ['Sun, 06 Nov 1994 08:48:00 GMT', 0],
  ['Mon, 07 Nov 1994 08:48:00 GMT', HOUR],
  ['', undefined],
  ['-1', undefined],
  ['1.5', undefined],
  ['1s', undefined],
  ['0x10', undefined],
  ['soon', undefined],
  ['Sun, 06 Nov 1994 08:49:37 CET', undefined],
  ['Sun, 06 Nov 1994 99:49:37 GMT', undefined],
  ['1994-11-06T08:49:37Z', undefined],
])('Retry-After: %s is %s ms', (value, ms) => {
  expect(retryAfterMs(['Retry-After', value], NOW)).toBe(ms);
});

test('a response without the field, or with two, has none', () => {
  expect(retryAfterMs([], NOW)).toBeUndefined();
  expect(retryAfterMs(['retry-after', '1', 'retry-after', '1'], NOW)).toBeUndefined();
});

test('a date counts from the Date of the response', () => {
  const headers = ['Date', 'Sun, 06 Nov 1994 08:49:30 GMT', 'retry-after', 'Sun, 06 Nov 1994 08:49:37 GMT'];
  expect(retryAfterMs(headers, NOW + HOUR)).toBe(7000);
  expect(retryAfterMs(['Date', 'today', ...headers.slice(2)], NOW)).toBe(37_000);
});
