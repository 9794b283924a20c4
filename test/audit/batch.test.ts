import { afterEach, describe, expect, jest, test } from '@jest/globals';
import { PendingRecords, Timestamp } from '../../src/audit/journal/batch.ts';
import { LineBuffer } from '../../src/audit/line-buffer.ts';

const LARGER_THAN_AT_FIRST = 200_000;

afterEach(() => {
  jest.useRealTimers();
});

function pendingFrom(first: number) {
  const told: number[] = [];
  const pending = new PendingRecords(first, {
    onRecord: (seq) => told.push(seq),
    onFailed: () => undefined,
  });
  const add = (count: number): void => {
    for (let left = count; left > 0; left -= 1)
      pending.add(() => `"kind":"admin","event":"e${told.length}"}`);
  };
  return { pending, told, add };
}

test('a batch has the records since the previous one, with their numbers and texts', () => {
  const { pending, told, add } = pendingFrom(7);
  expect([pending.isEmpty, pending.first]).toEqual([true, 7]);
  add(3);
  expect([pending.isEmpty, pending.size, told]).toEqual([false, 0, []]);
  const { lines, first, last } = pending.take();
  expect([first, last, told, pending.isEmpty, pending.first]).toEqual([7, 9, [7, 8, 9], true, 10]);
  const texts = lines.bytes.toString().split('\n');
  expect(texts.map((line) => line.replace(/"time":"[^"]+",/, ''))).toEqual([
    '{"seq":7,"kind":"admin","event":"e0"}',
    '{"seq":8,"kind":"admin","event":"e1"}',
    '{"seq":9,"kind":"admin","event":"e2"}',
    '',
  ]);
  add(1);
  expect(lines.bytes.toString().split('\n')).toHaveLength(4);
  pending.giveBack(lines);
  expect(pending.take()).toMatchObject({ first: 10, last: 10 });
});

test('makes the texts of many records before the batch is taken, so that bytes are kept', () => {
  const { pending, told, add } = pendingFrom(1);
  add(200);
  expect(told).toHaveLength(192);
  expect(pending.size).toBeGreaterThan(192 * 50);
  expect(pending.take()).toMatchObject({ first: 1, last: 200 });
  expect(told).toHaveLength(200);
});

test('a record has the time at which it was added, not that of its batch', () => {
  jest.useFakeTimers({ now: Date.UTC(2026, 2, 31, 23, 59, 59, 999) });
  const { pending, add } = pendingFrom(1);
  add(1);
  jest.setSystemTime(Date.UTC(2026, 3, 1, 0, 0, 1));
  add(1);
  const times = pending
    .take()
    .lines.bytes.toString()
    .match(/"time":"[^"]+"/g);
  expect(times).toEqual(['"time":"2026-03-31T23:59:59.999Z"', '"time":"2026-04-01T00:00:01.000Z"']);
});

describe('the line buffer', () => {
  test('holds lines as UTF-8, whatever they contain and however many there are', () => {
    const lines = new LineBuffer();
    const added = ['plain\n', 'ü€😀\n', `${'€'.repeat(LARGER_THAN_AT_FIRST)}\n`, 'last\n'];
    for (const line of added) lines.add(line);
    expect(lines.bytes.equals(Buffer.from(added.join('')))).toBe(true);
    expect(lines.size).toBe(Buffer.byteLength(added.join('')));
  });

  test('does not keep the seal: a batch that failed is written again with another', () => {
    const lines = new LineBuffer();
    lines.add('record\n');
    expect(lines.followedBy('first seal\n').toString()).toBe('record\nfirst seal\n');
    expect(lines.followedBy('other\n').toString()).toBe('record\nother\n');
    expect(lines.bytes.toString()).toBe('record\n');
  });

  test('drops its first lines', () => {
    const lines = new LineBuffer();
    lines.add('first\n');
    lines.copy(Buffer.from('-second\n-'), 1, 8);
    lines.drop('first\n'.length);
    expect(lines.bytes.toString()).toBe('second\n');
    expect(lines.size).toBe('second\n'.length);
  });

  test('is empty after it was cleared', () => {
    const lines = new LineBuffer();
    lines.add('x'.repeat(2 ** 21));
    lines.clear();
    lines.add('next\n');
    expect(lines.bytes.toString()).toBe('next\n');
  });
});

test('formats each millisecond as Date does', () => {
  const timestamp = new Timestamp();
  const start = Date.UTC(2026, 11, 31, 23, 59, 58);
  for (const after of [0, 0, 7, 99, 100, 999, 1000, 1001, 1999, 2000, 60_000, 59_999]) {
    const time = start + after;
    expect(timestamp.of(time)).toBe(new Date(time).toISOString());
  }
});
