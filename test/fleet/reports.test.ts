import { expect, test } from '@jest/globals';
import type { AuditLine } from '../../src/control/view.ts';
import { RecentLines } from '../../src/fleet/reports.ts';

test('lines of the audit log are kept by their position', () => {
  const lines = new RecentLines();
  const line = (seq: number): AuditLine => ({ seq }) as AuditLine;
  const seqs = (position: number) => lines.since(position).lines.map(({ seq }) => seq);
  expect(lines.since(0)).toEqual({ lines: [], position: 0 });
  lines.add([line(1), line(2)]);
  lines.add([line(7)]);
  expect([seqs(0), seqs(2), seqs(3)]).toEqual([[1, 2, 7], [7], []]);
  lines.add(Array.from({ length: 600 }, (_, at) => line(100 + at)));
  expect(seqs(0)).toHaveLength(500);
  expect(seqs(602)).toEqual([699]);
  expect(lines.since(0).position).toBe(603);
});
