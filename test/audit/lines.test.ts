import { describe, expect, test } from '@jest/globals';
import { Lines } from '../../src/audit/journal/lines.ts';

const LARGER_THAN_AT_FIRST = 200_000;

describe('lines of a batch', () => {
  test('are bytes in UTF-8, whatever is in them and however many there are', () => {
    const lines = new Lines();
    const added = ['plain\n', 'ü€😀\n', `${'€'.repeat(LARGER_THAN_AT_FIRST)}\n`, 'last\n'];
    for (const line of added) lines.add(line);
    expect(lines.bytes.equals(Buffer.from(added.join('')))).toBe(true);
    expect(lines.size).toBe(Buffer.byteLength(added.join('')));
  });

  test('do not keep the seal that is written behind them: a batch that failed is written with another', () => {
    const lines = new Lines();
    lines.add('record\n');
    expect(lines.followedBy('first seal\n').toString()).toBe('record\nfirst seal\n');
    expect(lines.followedBy('other\n').toString()).toBe('record\nother\n');
    expect(lines.bytes.toString()).toBe('record\n');
  });

  test('begin anew when they are cleared', () => {
    const lines = new Lines();
    lines.add('x'.repeat(2 ** 21));
    lines.clear();
    lines.add('next\n');
    expect(lines.bytes.toString()).toBe('next\n');
  });
});
