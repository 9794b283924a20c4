import { expect, test } from '@jest/globals';
import { RecordRing } from '../../src/audit/journal/file-audit.ts';

function filled(count: number): RecordRing {
  const recent = new RecordRing();
  for (let seq = 1; seq <= count; seq += 1) recent.add(seq, 0, `record ${seq}`);
  return recent;
}

const numbers = (recent: RecordRing, position = 0): number[] =>
  recent.since(position).records.map(({ seq }) => seq);

test('keeps the last 500 records, and reads on from a position', () => {
  const recent = filled(700);
  expect(numbers(recent)).toEqual(Array.from({ length: 500 }, (_, at) => 201 + at));
  const { position } = recent.since(0);
  recent.add(701, 0, 'record 701');
  expect(recent.since(position)).toMatchObject({
    records: [{ seq: 701, record: 'record 701' }],
    position: 701,
  });
});

test('keeps no records while thousands are not read, and keeps them again after a read', () => {
  const recent = filled(6_000);
  expect(numbers(recent)).toEqual([]);
  recent.add(6_001, 0, 'record 6001');
  expect(numbers(recent)).toEqual([6_001]);
});
