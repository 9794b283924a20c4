import { stripVTControlCharacters } from 'node:util';
import { expect, test } from '@jest/globals';
import { createLog } from '../../src/base/log.ts';

test('on a terminal, nothing that a client or an upstream sent commands it', () => {
  let screen = '';
  const log = createLog({
    isTTY: true,
    write: (text: string) => {
      screen += text;
    },
  });
  const hostile = 'a\u001b[2J\u009b8m\u202eb';
  log.warn({ path: hostile, detail: { hostile } }, hostile);
  log.error({ cause: { stack: `Error: ${hostile}\n    at b` } }, 'internal error');
  expect(screen.split('a\\u001b[2J\\u009b8m\\u202eb')).toHaveLength(5);
  // Colours are those of the log itself.
  expect(stripVTControlCharacters(screen).replaceAll('\n', '')).not.toMatch(/[\p{Cc}\p{Cf}]/u);
});
