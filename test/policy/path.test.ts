import { expect, test } from '@jest/globals';
import { withoutPrefix } from '../../src/policy/path.ts';

test.each([
  ['/gw/a?b=%27', '/gw', '/a?b=%27'],
  ['/gw', '/gw', '/'],
  ['/gw?a', '/gw', '/?a'],
  ['/gw/', '/gw', '/'],
  ['/gw//a', '/gw', '//a'],
  ['/gwx/a', '/gw', '/gwx/a'],
  ['/a/gw', '/gw', '/a/gw'],
  ['/gw/a', undefined, '/gw/a'],
])('%s without %s is %s', (target, prefix, expected) => {
  expect(withoutPrefix(target, prefix)).toBe(expected);
});
