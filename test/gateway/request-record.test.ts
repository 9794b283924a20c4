import { expect, test } from '@jest/globals';
import { pathOf } from '../../src/gateway/request-record.ts';

test.each([
  ['/a/b?user=secret', '/a/b'],
  ['http://user:secret@host:80/a?b', '/a'],
  ['http://user:secret@host?b', ''],
  ['http:user:secret@host/a', ''],
  ['user:secret@host:443', ''],
  ['*', '*'],
])('the path that is logged of %s is %s', (target, path) => {
  expect(pathOf(target)).toBe(path);
});
