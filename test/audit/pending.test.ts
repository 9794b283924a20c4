import { afterEach, expect, jest, test } from '@jest/globals';
import { PendingRecords } from '../../src/audit/journal/batch.ts';

afterEach(() => {
  jest.useRealTimers();
});

function pendingFrom(first: number) {
  const told: number[] = [];
  const pending = new PendingRecords(
    first,
    (seq) => told.push(seq),
    () => undefined,
  );
  const add = (count: number): void => {
    for (let left = count; left > 0; left -= 1)
      pending.add(() => `"kind":"admin","event":"e${told.length}"}`);
  };
  return { pending, told, add };
}

test('a batch has the records since the one before, by their numbers, and is taken with their text', () => {
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

test('many get their text before a batch is taken, so that what is kept is bytes', () => {
  const { pending, told, add } = pendingFrom(1);
  add(200);
  expect(told).toHaveLength(192);
  expect(pending.size).toBeGreaterThan(192 * 50);
  expect(pending.take()).toMatchObject({ first: 1, last: 200 });
  expect(told).toHaveLength(200);
});

test('a record has the time at which it came, not that of its batch', () => {
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
