import { expect, test } from '@jest/globals';
import { requestIdOf } from '../../src/gateway/request-record.ts';

const UUID = /^[\da-f]{8}-[\da-f]{4}-4[\da-f]{3}-[89ab][\da-f]{3}-[\da-f]{12}$/;

test.each(['a', 'req-1', '0af7651916cd43dd8448eb211c80319c', '...', "!#$%&'*+-.^_`|~", 'x'.repeat(128)])(
  'the plain token %s is kept',
  (sent) => {
    expect(requestIdOf(sent)).toBe(sent);
  },
);

test.each([
  undefined,
  '',
  'two words',
  'a,b',
  'a"b',
  'a/b',
  'caf\xe9',
  'a\n',
  'a\r\nX: y',
  'x'.repeat(129),
  'a, b',
  '.',
  '..',
])('%j is replaced', (sent) => {
  const first = requestIdOf(sent);
  expect(first).toMatch(UUID);
  expect(requestIdOf(sent)).not.toBe(first);
});

test('new ids are different ones, also when the random bytes are renewed', () => {
  const ids = Array.from({ length: 1000 }, () => requestIdOf(undefined));
  expect(new Set(ids).size).toBe(ids.length);
  expect(ids.filter((id) => !UUID.test(id))).toEqual([]);
});
