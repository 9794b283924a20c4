import { expect, test } from '@jest/globals';
import { cookiePairs } from '../../src/challenges/cookies.ts';

test('cookies are kept by name and value, bounded in number and length', () => {
  expect(cookiePairs(['session=a=b; Path=/; HttpOnly', ' node=1', '=nameless', 'none', ''])).toEqual([
    'session=a=b',
    'node=1',
  ]);
  expect(cookiePairs(Array.from({ length: 100 }, (_, index) => `c${index}=1`))).toHaveLength(16);
  expect(cookiePairs([`big=${'x'.repeat(5000)}`])).toEqual([]);
  const large = Array.from({ length: 5 }, (_, index) => `c${index}=${'x'.repeat(1000)}`);
  expect(cookiePairs([...large, 'small=1'])).toEqual([...large.slice(0, 4), 'small=1']);
  expect(cookiePairs([`a=${'x'.repeat(4094)}`])).toHaveLength(1);
  expect(cookiePairs([`a=${'x'.repeat(4095)}`])).toEqual([]);
  expect(cookiePairs(['a=b\r\nX: y', 'a\r\nX=y', 'c=\u0100', '\u0100=c', 'd=\u00ff'])).toEqual(['d=\u00ff']);
});
