import {
  appendFile,
  copyFile,
  type FileHandle,
  mkdir,
  open,
  readFile,
  rename,
  rm,
  truncate,
  writeFile,
} from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, describe, expect, jest, test } from '@jest/globals';
import { auditKeys } from '../../src/audit/keys.ts';
import { RecordText, recordLine } from '../../src/audit/record.ts';
import { GENESIS, sealFor, sealLine } from '../../src/audit/seal.ts';
import { CollectedFile, CollectionProgress } from '../../src/audit/shipping/collector.ts';
import type { StreamEntry } from '../../src/audit/shipping/redis-stream.ts';
import { fileMessageOf } from '../../src/base/error-code.ts';
import { Secret } from '../../src/base/secret.ts';
import { AUDIT_KEY, useFolders } from '../support/audit-log.ts';

const folder = useFolders();
const keys = auditKeys(new Secret(AUDIT_KEY));
const HMAC = 'x'.repeat(43);

function lineOf(seq: number, second = seq, replica = 'r1'): string {
  const time = new Date(Date.UTC(2026, 0, 1, 0, 0, second)).toISOString();
  return recordLine(seq, time, new RecordText(replica).admin('x', {}));
}

interface Sent {
  readonly replica?: string;
  /** Seconds that the records are later than their numbers. */
  readonly late?: number;
  readonly previous?: string;
  readonly key?: typeof keys;
}

/** An entry of the records `first` to `last`. */
function batch(first: number, last = first, sent: Sent = {}): StreamEntry {
  const { replica = 'r1', late = 0, previous = GENESIS, key = keys } = sent;
  const numbers = Array.from({ length: last - first + 1 }, (_, index) => first + index);
  const lines = numbers.map((seq) => lineOf(seq, seq + late, replica)).join('');
  const seal = sealLine(sealFor(key, { replica, previous }, { first, last }, Buffer.from(lines))).trimEnd();
  const id = `${first}-${late}`;
  return { id, replica, lines, seal, previous, anchor: false, tooLarge: false, gone: false };
}

const range = (first: number, last: number): number[] =>
  Array.from({ length: last - first + 1 }, (_, at) => first + at);

/** For each entry the numbers that were taken from it, and what was said. */
function taken(...entries: StreamEntry[]) {
  const notes: string[] = [];
  const progress = new CollectionProgress({
    reached: [],
    keys: [keys],
    onNote: (note) => notes.push(note),
    onRejected: (id, reason) => notes.push(`${id}: ${reason}`),
  });
  const texts = entries.map((entry) => progress.take(entry));
  const numbers = texts.map((text) => Array.from(text.matchAll(/"seq":(\d+)/g), ([, seq]) => Number(seq)));
  return { numbers, texts, notes, progress };
}

describe('the progress of a collection', () => {
  test('takes no record that is older than the first of its file, or than what follows a gap', () => {
    expect(taken(batch(11, 20), batch(1, 10), batch(31, 40), batch(25, 30), batch(41))).toMatchObject({
      numbers: [range(11, 20), [], range(31, 40), [], [41]],
      notes: ['r1: records 21 to 30 are no longer in the stream: they are in its files'],
    });
  });

  test('takes each record once', () => {
    expect(taken(batch(1), batch(2, 4), batch(1), batch(2, 4), batch(5))).toMatchObject({
      numbers: [[1], [2, 3, 4], [], [], [5]],
      notes: [],
    });
  });

  test('takes no record twice after a clock was set back', () => {
    const ahead = { late: 60 };
    expect(taken(batch(1, 2, ahead), batch(3), batch(1, 2, ahead), batch(3), batch(4))).toMatchObject({
      numbers: [[1, 2], [3], [], [], [4]],
      notes: [],
    });
  });

  test('is kept for each replica', () => {
    const other = { replica: 'r2' };
    expect(taken(batch(1), batch(1, 1, other), batch(2, 2, other))).toMatchObject({
      numbers: [[1], [1], [2]],
      notes: [],
    });
  });

  test('notes missing records', () => {
    expect(taken(batch(3), batch(7))).toMatchObject({
      numbers: [[3], [7]],
      notes: ['r1: records 4 to 6 are no longer in the stream: they are in its files'],
    });
  });

  test('notes a number that comes again after a machine lost the end of its log', () => {
    const again = { late: 7 };
    expect(taken(batch(1, 2), batch(2, 3, again), batch(4, 4, again), batch(2, 3, again))).toMatchObject({
      numbers: [[1, 2], [2, 3], [4], []],
      notes: [
        'r1: record 2 comes a second time with another content: its log lost its end, or two gateways have its name',
      ],
    });
  });

  test('notes that also after a clock that was ahead', () => {
    const [ahead, again] = [{ late: 3600 }, { late: 7 }];
    const lost = batch(4, 5);
    const entries = [batch(1), batch(2, 3, ahead), lost, batch(4, 5, again), batch(6, 6, again)];
    const repeated = [batch(2, 3, ahead), lost, batch(4, 5, again)];
    expect(taken(...entries, ...repeated)).toMatchObject({
      numbers: [[1], [2, 3], [4, 5], [4, 5], [6], [], [], []],
      notes: [
        'r1: record 4 comes a second time with another content: its log lost its end, or two gateways have its name',
      ],
    });
  });

  test('takes records that a machine with a right clock wrote instead of lost ones of a clock that was ahead', () => {
    const ahead = { late: 3600 };
    const entries = [batch(1, 3), batch(4, 8, ahead), batch(7, 10), batch(11)];
    const note =
      'r1: record 7 comes a second time with another content: its log lost its end, or two gateways have its name';
    const { numbers, notes } = taken(...entries, ...entries, batch(12));
    expect(numbers).toEqual([[1, 2, 3], [4, 5, 6, 7, 8], [7, 8, 9, 10], [11], [], [], [], [], [12]]);
    expect(notes).toEqual([note]);
  });

  test('takes no record twice that is repeated after very many others', () => {
    const [size, ahead] = [10_000, { late: 1e6 }];
    const many = Array.from({ length: 15 }, (_, index) => batch(index * size + 21, (index + 1) * size + 20));
    const old = [batch(1, 10), batch(11, 20, ahead)];
    const { numbers, notes } = taken(
      ...old,
      ...many,
      ...old,
      many[0] as StreamEntry,
      batch(150_020),
      batch(150_021),
    );
    expect(numbers.map(({ length }) => length)).toEqual([10, 10, ...many.map(() => size), 0, 0, 0, 0, 1]);
    expect(notes).toEqual([]);
  });

  test('takes a head once, and ignores an entry that is gone', () => {
    const gone = { ...batch(1), replica: '', lines: '', seal: '', gone: true };
    const anchored = { ...batch(2), anchor: true };
    const { texts, notes } = taken(batch(1), anchored, anchored, gone);
    const [, hmac] = /"hmac":"([^"]+)/.exec(anchored.seal) ?? [];
    expect(texts.slice(1)).toEqual([
      `${lineOf(2)}${JSON.stringify({ kind: 'head', replica: 'r1', seq: 2, hmac })}\n`,
      '',
      '',
    ]);
    expect(notes).toEqual([]);
  });

  const stranger = { key: auditKeys(new Secret('f'.repeat(64))) };
  const forgeries: [string, StreamEntry][] = [
    ['no seal', { ...batch(9000, 9000, { late: 3e9 }), seal: '' }],
    ['the seal of another key', batch(9000, 9000, { late: 3e9, ...stranger })],
    ['the seal of other lines', { ...batch(9), lines: lineOf(9, 3e9) }],
    ['the seal of another replica', { ...batch(9, 9, { replica: 'r2' }), replica: 'r1' }],
    ['another seal before it', { ...batch(9), previous: HMAC }],
    ['more than a batch has', { ...batch(9), lines: '', tooLarge: true }],
  ];
  test.each(forgeries)('ignores an entry that has %s', (_title, forged) => {
    const { numbers, notes, progress } = taken(batch(1), forged, batch(2));
    expect(numbers).toEqual([[1], [], [2]]);
    expect(notes).toEqual([expect.stringContaining(forged.id)]);
    expect([...progress.replicas.keys()]).toEqual(['r1']);
  });
});

/** What the handles of all files inherit. */
async function prototypeOfHandles(path: string): Promise<FileHandle> {
  await using handle = await open(path);
  return Object.getPrototypeOf(handle);
}

describe('the file of a collector', () => {
  test('says how far each replica was collected, and loses an incomplete line', async () => {
    const path = join(await folder(), 'all.jsonl');
    const file = await CollectedFile.open(path);
    await file.append(lineOf(1));
    await file.close();
    const head = `${JSON.stringify({ kind: 'head', replica: 'r1', seq: 3, hmac: HMAC })}\n`;
    const whole = lineOf(1) + lineOf(2) + lineOf(7, 7, 'r2') + lineOf(3) + head;
    await writeFile(path, `${whole}{"seq":4,"ti`);
    const again = await CollectedFile.open(path);
    expect([...again.reached]).toMatchObject([
      ['r1', { seq: 3, times: [{ seq: 3, time: '2026-01-01T00:00:03.000Z' }], head: 3 }],
      ['r2', { seq: 7, times: [{ seq: 7, time: '2026-01-01T00:00:07.000Z' }], head: 0 }],
    ]);
    expect(await readFile(path, 'utf8')).toBe(whole);
    await again.append(lineOf(4));
    await again.close();
    expect(await readFile(path, 'utf8')).toBe(whole + lineOf(4));
  });

  test('says when a clock was ahead, so that its records are known, and later ones are new', async () => {
    const path = join(await folder(), 'all.jsonl');
    const file = await CollectedFile.open(path);
    await file.append(lineOf(1) + lineOf(2, 3600) + lineOf(3) + lineOf(4));
    await file.close();
    const again = await CollectedFile.open(path);
    const progress = new CollectionProgress({
      reached: again.reached,
      keys: [keys],
      onNote: () => undefined,
      onRejected: () => undefined,
    });
    await again.close();
    const late = { late: 10 };
    const [known, lost] = [batch(2, 2, { late: 3598 }), batch(2, 3, { late: 100 })];
    const texts = [known, batch(4), batch(4, 4, late), lost].map((entry) => progress.take(entry));
    expect(texts).toEqual(['', '', lineOf(4, 14), lineOf(2, 102) + lineOf(3, 103)]);
  });

  test.each([
    ['a record', lineOf(104)],
    [
      'a head',
      taken({ ...batch(104), anchor: true })
        .texts.join('')
        .slice(lineOf(104).length),
    ],
  ])('loses %s that was cut off at any byte', async (_title, cut) => {
    const path = join(await folder(), 'all.jsonl');
    for (let length = 0; length < cut.length; length += 1) {
      await writeFile(path, lineOf(103) + cut.slice(0, length));
      const file = await CollectedFile.open(path);
      await file.close();
      expect(await readFile(path, 'utf8')).toBe(lineOf(103));
    }
  });

  describe('that another program touches while it runs', () => {
    const opened: CollectedFile[] = [];
    afterEach(async () => {
      for (const file of opened.splice(0)) await file.close();
    });

    /** A file with one record, in a folder of its own. */
    async function withOne() {
      const place = join(await folder(), 'place');
      await mkdir(place);
      const path = join(place, 'all.jsonl');
      const file = await CollectedFile.open(path);
      opened.push(file);
      await file.append(lineOf(1));
      return { place, path, moved: join(place, 'all.1.jsonl'), file };
    }

    test('goes on in a new file after it was moved away, which has its lock, too', async () => {
      const { path, moved, file } = await withOne();
      await rename(path, moved);
      await file.append(lineOf(2));
      await rm(moved);
      await file.append(lineOf(3));
      expect(await readFile(path, 'utf8')).toBe(lineOf(2) + lineOf(3));
      await expect(CollectedFile.open(path)).rejects.toThrow('belongs to another audit export');
    });

    test('goes on in a new file after it was removed, and in one that is there already', async () => {
      const { path, moved, file } = await withOne();
      await rm(path);
      await file.append(lineOf(2));
      await rename(path, moved);
      await writeFile(path, lineOf(2));
      await file.append(lineOf(3));
      expect(await readFile(moved, 'utf8')).toBe(lineOf(2));
      expect(await readFile(path, 'utf8')).toBe(lineOf(2) + lineOf(3));
    });

    test('has each record once, and in a file that had the name, if it is moved away during a write', async () => {
      const { path, moved, file } = await withOne();
      // What the system does last with the lines that were written.
      const datasync = jest.spyOn(await prototypeOfHandles(path), 'datasync');
      datasync.mockImplementationOnce(() => rename(path, moved));
      await file.append(lineOf(2));
      expect(datasync).toHaveBeenCalledTimes(2);
      datasync.mockRestore();
      expect(await readFile(moved, 'utf8')).toBe(lineOf(1));
      expect(await readFile(path, 'utf8')).toBe(lineOf(2));
    });

    test('makes the name of a new file durable before it gets lines', async () => {
      const { path, moved, file } = await withOne();
      await rename(path, moved);
      const sync = jest.spyOn(await prototypeOfHandles(moved), 'sync');
      const before: string[] = [];
      sync.mockImplementationOnce(async () => void before.push(await readFile(path, 'utf8')));
      await file.append(lineOf(2));
      expect(before).toEqual(['']);
      sync.mockRestore();
      expect(await readFile(path, 'utf8')).toBe(lineOf(2));
    });

    test('takes no file of something else that came in its place', async () => {
      const { path, file } = await withOne();
      await rm(path);
      await writeFile(path, 'mine');
      await expect(file.append(lineOf(2))).rejects.toThrow(`${path} holds something else`);
      expect(await readFile(path, 'utf8')).toBe('mine');
    });

    test('ends if its folder is gone', async () => {
      const { place, file } = await withOne();
      await rm(place, { recursive: true });
      const error = await file.append(lineOf(2)).catch((thrown: unknown) => thrown);
      expect(fileMessageOf(error)).toBe(`${place} does not exist: create it, or name another one`);
    });

    test('ends if it is cut off, and leaves no hole', async () => {
      const { path, file } = await withOne();
      await truncate(path);
      await expect(file.append(lineOf(2))).rejects.toThrow(`${path} was cut off by another program`);
      expect(await readFile(path, 'utf8')).toBe('');
    });

    test('ends if it is cut off during a write', async () => {
      const { path, file } = await withOne();
      const datasync = jest.spyOn(await prototypeOfHandles(path), 'datasync');
      datasync.mockImplementationOnce(() => truncate(path));
      await expect(file.append(lineOf(2))).rejects.toThrow(`${path} was cut off by another program`);
      datasync.mockRestore();
    });

    test('minds no lines that are added to it', async () => {
      const { path, file } = await withOne();
      await appendFile(path, lineOf(2));
      await file.append(lineOf(3));
      expect(await readFile(path, 'utf8')).toBe(lineOf(1) + lineOf(2) + lineOf(3));
    });
  });

  test('needs nothing beside it: a copy says the same', async () => {
    const directory = await folder();
    const file = await CollectedFile.open(join(directory, 'all.jsonl'));
    await file.append(lineOf(1) + lineOf(2));
    await file.close();
    const copied = join(directory, 'copy.jsonl');
    await copyFile(join(directory, 'all.jsonl'), copied);
    const copy = await CollectedFile.open(copied);
    expect(copy.reached.get('r1')).toMatchObject({ seq: 2 });
    await copy.close();
  });

  test.each([
    'what somebody wrote down\n',
    'not even a line',
    '{"seq":1,"mine":true}',
    '{"kind":"of another program"}',
  ])('is no other kind of file: %j', async (notes) => {
    const path = join(await folder(), 'notes.txt');
    await writeFile(path, notes);
    await expect(CollectedFile.open(path)).rejects.toThrow(path);
    expect(await readFile(path, 'utf8')).toBe(notes);
  });
});
