import { stripVTControlCharacters, styleText } from 'node:util';
import { expect, test } from '@jest/globals';
import { alignColumns } from '../../src/cli/table.ts';

test('columns are aligned by the width that cells have on a terminal', () => {
  const red = styleText('red', 'no', { validateStream: false });
  const lines = alignColumns([
    ['NAME', 'STATE', 'FROM'],
    ['日本', red, 'file a'],
    ['long name', '-', ''],
  ]);
  expect(lines.map(stripVTControlCharacters)).toEqual([
    'NAME       STATE  FROM',
    '日本       no     file a',
    'long name  -',
  ]);
  expect(lines[1]).toContain(red);
});

test('a combined character takes one column, an emoji two', () => {
  const lines = alignColumns([
    ['cafe\u0301', 'x'],
    ['🔑', 'x'],
    ['👩‍💻', 'x'],
  ]);
  expect(lines).toEqual(['cafe\u0301  x', '🔑    x', '👩‍💻    x']);
});

test('a column is never narrower than asked for, and never cut', () => {
  expect(alignColumns([['a', 'b', 'c']], [3])).toEqual(['a    b  c']);
  expect(alignColumns([['four', 'b', 'c']], [3])).toEqual(['four  b  c']);
});

test('a cell can have several lines', () => {
  expect(alignColumns([['a', 'b\n→ c']])).toEqual(['a  b', '   → c']);
});

test('no rows are no lines', () => {
  expect(alignColumns([])).toEqual([]);
});
