import { expect, test } from '@jest/globals';
import { cookiePairs } from '../../src/upstream/cookies.ts';

test('cookies are kept by name and value, bounded in number and length', () => {
  expect(cookiePairs(['session=a=b; Path=/; HttpOnly', ' node=1', '=nameless', 'none', ''])).toEqual([
    'session=a=b',
    'node=1',
  ]);
  expect(cookiePairs(Array.from({ length: 100 }, (_, index) => `c${index}=1`))).toHaveLength(16);
  expect(cookiePairs([`big=${'x'.repeat(5000)}`])).toEqual([]);
});
