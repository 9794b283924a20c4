import { expect, test } from '@jest/globals';
import type { AuditLine } from '../../src/control/view.ts';
import type { RemoteWorker } from '../../src/fleet/remote-worker.ts';
import { RecentLines, Reports } from '../../src/fleet/reports.ts';
import { KeysSeen } from '../../src/gateway/keys-seen.ts';

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

test('keys that a worker has seen are seen when it has ended, at the latest of all times', async () => {
  const reports = new Reports({ merged: { set() {}, ended() {} } } as never);
  const worker = (...keysSeen: [string, string, number][]) =>
    ({
      number: 1,
      state: undefined,
      takeReports: () => [{ metrics: [], lines: [], refusals: [], keysSeen }],
    }) as unknown as RemoteWorker;
  reports.ended(worker(['reporting', 'old', 2], ['archive', 'old', 9], ['reporting', 'new', 5]));
  reports.ended(worker(['reporting', 'old', 1]));
  const lastSeen = (await reports.clientUse([], 'reporting')).keys;
  expect(lastSeen).toEqual([
    { name: 'old', lastSeen: 2 },
    { name: 'new', lastSeen: 5 },
  ]);
});

test('what a process has seen of keys is the same in another one', () => {
  const [seen, kept] = [new KeysSeen(), new KeysSeen()];
  seen.happened('reporting', 'old');
  kept.keep(seen.all);
  expect(kept.of('reporting')).toEqual(seen.of('reporting'));
});
