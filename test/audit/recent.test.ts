import { expect, test } from '@jest/globals';
import { RecentRecords } from '../../src/audit/journal/recent.ts';

function filled(count: number): RecentRecords {
  const recent = new RecentRecords();
  for (let seq = 1; seq <= count; seq += 1) recent.add(seq, 0, `record ${seq}`);
  return recent;
}

const numbers = (recent: RecentRecords, position = 0): number[] =>
  recent.since(position).records.map(({ seq }) => seq);

test('the last 500 records are kept, and who looked goes on where he was', () => {
  const recent = filled(700);
  expect(numbers(recent)).toEqual(Array.from({ length: 500 }, (_, at) => 201 + at));
  const { position } = recent.since(0);
  recent.add(701, 0, 'record 701');
  expect(recent.since(position)).toMatchObject({
    records: [{ seq: 701, record: 'record 701' }],
    position: 701,
  });
});

test('none is kept while nobody looks at thousands, and those that come after a look are', () => {
  const recent = filled(6_000);
  expect(numbers(recent)).toEqual([]);
  recent.add(6_001, 0, 'record 6001');
  expect(numbers(recent)).toEqual([6_001]);
});
