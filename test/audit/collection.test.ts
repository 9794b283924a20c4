import { readFile, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from '@jest/globals';
import { CollectedFile } from '../../src/audit/collected-file.ts';
import { Progress } from '../../src/audit/collection-progress.ts';
import { RecordText, recordLine } from '../../src/audit/record.ts';
import type { StreamEntry } from '../../src/audit/redis-stream.ts';
import { useFolders } from '../support/audit-log.ts';

const folder = useFolders();
const HMAC = 'x'.repeat(43);

function record(seq: number, second = seq, replica = 'r1'): StreamEntry {
  const time = new Date(Date.UTC(2026, 0, 1, 0, 0, second)).toISOString();
  const line = recordLine(seq, time, new RecordText(replica).admin('x', {})).trimEnd();
  return { id: `${second}-0`, replica, seq, record: line, head: undefined };
}

function head(seq: number): StreamEntry {
  return { id: 'h-0', replica: 'r1', seq, record: undefined, head: `r1:${seq}:${HMAC}` };
}

/** For each entry whether it was taken, and what was said. */
function taken(...entries: StreamEntry[]) {
  const notes: string[] = [];
  const progress = new Progress([], (note) => notes.push(note));
  return { lines: entries.map((entry) => progress.take(entry)), notes };
}

const outcome = ({ lines, notes }: ReturnType<typeof taken>) => [
  lines.map((line) => line !== undefined),
  notes,
];

describe('what is collected', () => {
  test('is each record once', () => {
    expect(outcome(taken(record(1), record(2), record(1), record(2), record(3)))).toEqual([
      [true, true, false, false, true],
      [],
    ]);
  });

  test('is told apart by replica', () => {
    expect(outcome(taken(record(1), record(1, 1, 'r2'), record(2, 2, 'r2')))).toEqual([
      [true, true, true],
      [],
    ]);
  });

  test('is told to have a gap', () => {
    expect(outcome(taken(record(3), record(7)))).toEqual([
      [true, true],
      ['r1: records 4 to 6 are no longer in the stream: they are in its files'],
    ]);
  });

  test('is told to have a number twice when a machine lost the end of its log', () => {
    expect(outcome(taken(record(1), record(2), record(2, 9), record(3, 10), record(2, 9)))).toEqual([
      [true, true, true, true, false],
      ['r1: record 2 comes a second time with another content: its log lost its end'],
    ]);
  });

  test('has the end of a chain once, and nothing of an entry that is gone', () => {
    const gone = { id: 'g-0', replica: '', seq: 0, record: undefined, head: undefined };
    const { lines } = taken(record(1), head(1), head(1), gone);
    expect(lines.slice(1)).toEqual([
      `${JSON.stringify({ kind: 'head', replica: 'r1', seq: 1, hmac: HMAC })}\n`,
      undefined,
      undefined,
    ]);
  });
});

describe('the file of a collector', () => {
  const reached = (seq: number) => new Map([['r1', { seq, time: '', head: 0 }]]);
  const lineOf = (seq: number): string => `${record(seq).record}\n`;

  test('counts what was written and not noted, and cuts off a line that was not finished', async () => {
    const path = join(await folder(), 'all.jsonl');
    const file = await CollectedFile.open(path);
    await file.append(lineOf(1), reached(1));
    await file.close();
    const whole = lineOf(1) + lineOf(2) + lineOf(3);
    await writeFile(path, `${whole}{"seq":4,"ti`);
    const again = await CollectedFile.open(path);
    expect(again.reached.get('r1')).toMatchObject({ seq: 3, time: '2026-01-01T00:00:03.000Z' });
    expect(await readFile(path, 'utf8')).toBe(whole);
    await again.append(lineOf(4), reached(4));
    await again.close();
    expect(await readFile(path, 'utf8')).toBe(whole + lineOf(4));
  });

  test('may be moved away: what was in it stays collected', async () => {
    const path = join(await folder(), 'all.jsonl');
    const file = await CollectedFile.open(path);
    await file.append(lineOf(1) + lineOf(2), reached(2));
    await file.close();
    await rename(path, `${path}.1`);
    const again = await CollectedFile.open(path);
    expect(again.reached.get('r1')?.seq).toBe(2);
    await again.append(lineOf(3), reached(3));
    await again.close();
    expect(await readFile(path, 'utf8')).toBe(lineOf(3));
  });

  test.each(['what somebody wrote down\n', 'not even a line'])(
    'is no other kind of file: %j',
    async (notes) => {
      const path = join(await folder(), 'notes.txt');
      await writeFile(path, notes);
      await expect(CollectedFile.open(path)).rejects.toThrow(`${path} holds something else`);
      expect(await readFile(path, 'utf8')).toBe(notes);
    },
  );
});
