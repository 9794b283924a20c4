import { expect, test } from '@jest/globals';
import { Timestamp } from '../../src/audit/journal/timestamp.ts';

test('each record has the time of its millisecond', () => {
  const timestamp = new Timestamp();
  const start = Date.UTC(2026, 11, 31, 23, 59, 58);
  for (const after of [0, 0, 7, 99, 100, 999, 1000, 1001, 1999, 2000, 60_000, 59_999]) {
    const time = start + after;
    expect(timestamp.of(time)).toBe(new Date(time).toISOString());
  }
});
