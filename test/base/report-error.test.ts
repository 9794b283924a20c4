import { expect, test } from '@jest/globals';
import { describeError } from '../../src/base/report-error.ts';

test('describes an error with its code, its stack and its causes, but nothing that it quotes', () => {
  const cause = Object.assign(new TypeError('bad value\nReceived "hunter2"'), {
    code: 'ERR_INVALID_ARG_VALUE',
    input: 'hunter2',
  });
  const described = describeError(new Error('no token', { cause }));
  expect(described).toMatch(/^Error: no token\n {4}at .+\n/);
  expect(described).toMatch(
    /\ncaused by TypeError \[ERR_INVALID_ARG_VALUE\]: bad value\nReceived "…"\n {4}at /,
  );
  expect(described).not.toContain('hunter2');
});

test.each(['{"a": hunter2}', 'hunter2', '"hunter2'])(
  'quotes nothing of a text that is no JSON: %s',
  (text) => {
    try {
      JSON.parse(text);
    } catch (error) {
      expect(describeError(error)).toMatch(/^SyntaxError: /);
      expect(describeError(error)).not.toContain('hunter2');
    }
  },
);

test('names the type only of what is no Error, and ends with a chain of causes that has no end', () => {
  expect(describeError('hunter2')).toBe('no Error, but of type string');
  const error = new Error('x');
  error.cause = error;
  expect(describeError(error).match(/caused by/g)).toHaveLength(3);
});
