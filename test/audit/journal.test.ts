import { afterEach, describe, expect, jest, test } from '@jest/globals';
import { LineBuffer, PendingRecords, RecordRing, Timestamp } from '../../src/audit/journal/batch.ts';
import { type LeftOut, RefusalSample } from '../../src/audit/journal/refusal-sample.ts';
import { facts, openTestAudit, recordsIn, useFolders } from '../support/audit-log.ts';

const LARGER_THAN_AT_FIRST = 200_000;
const folder = useFolders();

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

describe('a batch', () => {
  test('has the records since the previous one, with their numbers and texts', () => {
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

  test('gets the texts of many records before it is taken', () => {
    const { pending, told, add } = pendingFrom(1);
    add(200);
    expect(told).toHaveLength(192);
    expect(pending.size).toBeGreaterThan(192 * 50);
    expect(pending.take()).toMatchObject({ first: 1, last: 200 });
    expect(told).toHaveLength(200);
  });

  test('has the time at which each record was added', () => {
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

  test.each([65_530, 65_536])('has a seal of any length behind %d bytes', (size) => {
    const lines = new LineBuffer();
    lines.add('x'.repeat(20_000));
    lines.add('x'.repeat(20_000));
    lines.add(`${'x'.repeat(size - 40_001)}\n`);
    const seal = `${'€'.repeat(50_000)}\n`;
    expect(lines.followedBy(seal).toString()).toBe(`${'x'.repeat(size - 1)}\n${seal}`);
    expect(lines.size).toBe(size);
  });

  test('gives up the memory of a burst when it is cleared, if that is more than 1 MiB', () => {
    const lines = new LineBuffer();
    const memory = (): number => lines.bytes.buffer.byteLength;
    const growTo = (bytes: number): void => {
      while (memory() < bytes) lines.add('x'.repeat(Math.floor((memory() - lines.size) / 3) + 1));
    };
    const least = memory();
    for (const [bytes, kept] of [
      [2 ** 20, 2 ** 20],
      [2 ** 21, least],
    ] as const) {
      growTo(bytes);
      expect(memory()).toBe(bytes);
      lines.clear();
      expect([lines.size, memory()]).toEqual([0, kept]);
    }
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

function filled(count: number): RecordRing {
  const recent = new RecordRing();
  for (let seq = 1; seq <= count; seq += 1) recent.add(seq, 0, `record ${seq}`);
  return recent;
}

const numbers = (recent: RecordRing, position = 0): number[] =>
  recent.since(position).records.map(({ seq }) => seq);

describe('the recent records', () => {
  test('are the last 500, and are read on from a position', () => {
    const recent = filled(700);
    expect(numbers(recent)).toEqual(Array.from({ length: 500 }, (_, at) => 201 + at));
    const { position } = recent.since(0);
    recent.add(701, 0, 'record 701');
    expect(recent.since(position)).toMatchObject({
      records: [{ seq: 701, record: 'record 701' }],
      position: 701,
    });
  });

  test('are not kept while thousands are not read', () => {
    const recent = filled(6_000);
    expect(numbers(recent)).toEqual([]);
    recent.add(6_001, 0, 'record 6001');
    expect(numbers(recent)).toEqual([6_001]);
  });
});

describe('the sample of refusals', () => {
  test('records some of many refusals, and the number of the others', async () => {
    const directory = await folder();
    const { audit } = await openTestAudit(directory);
    const told: boolean[] = [];
    const waiter = { recorded: () => told.push(true), unrecorded: () => told.push(false) };
    for (let index = 0; index < 500; index += 1) audit.refusal(facts({ code: 'client-unknown' }), waiter);
    await audit.close();
    const records = await recordsIn(directory);
    expect(records.filter(({ kind }) => kind === 'access')).toHaveLength(10);
    expect(records.at(-1)).toMatchObject({ event: 'refusals-left-out', client: 'reporting', count: 490 });
    expect(told).toEqual(Array(500).fill(true));
  });

  test('bounds refusals from many addresses, and accounts for each', () => {
    const leftOut: LeftOut[] = [];
    const sample = new RefusalSample((told) => leftOut.push(told));
    let admitted = 0;
    for (let index = 0; index < 20_000; index += 1)
      admitted += sample.admits('a', `10.0.${index % 5000}`) ? 1 : 0;
    sample.flush();
    const missing = leftOut.reduce((sum, { count }) => sum + count, 0);
    expect([admitted, admitted + missing]).toEqual([100, 20_000]);
    sample.flush();
    expect(sample.admits('a', '10.0.1')).toBe(true);
    sample.flush();
  });

  test.each([
    ['a client with many addresses', 'a', (index: number) => `10.0.${index >> 8}.${index & 255}`],
    ['one nobody knows, in a /64 of IPv6', '', (index: number) => `2001:db8:0:1::${index.toString(16)}`],
  ])('leaves room for others beside %s', (_who, client, addressOf) => {
    const leftOut: LeftOut[] = [];
    const sample = new RefusalSample((told) => leftOut.push(told));
    for (let index = 0; index < 20_000; index += 1) sample.admits(client, addressOf(index % 5000));
    const others = Array.from({ length: 12 }, () => sample.admits('', '192.0.2.1')).filter(Boolean);
    sample.flush();
    expect(others).toHaveLength(10);
    expect(leftOut).toContainEqual({ client: '', address: '192.0.2.1', count: 2 });
  });

  test('reports what it left out of each client after a second, and begins anew', () => {
    jest.useFakeTimers();
    const leftOut: LeftOut[] = [];
    const sample = new RefusalSample((told) => leftOut.push(told));
    const admitted = (client: string, count: number): number =>
      Array.from({ length: count }, () => sample.admits(client, '10.0.0.1')).filter(Boolean).length;
    expect([admitted('a', 12), admitted('b', 11), admitted('c', 10)]).toEqual([10, 10, 10]);
    jest.advanceTimersByTime(999);
    expect(leftOut).toEqual([]);
    jest.advanceTimersByTime(1);
    expect(leftOut).toEqual([
      { client: 'a', address: '10.0.0.1', count: 2 },
      { client: 'b', address: '10.0.0.1', count: 1 },
    ]);
    expect(admitted('a', 11)).toBe(10);
    jest.advanceTimersByTime(1000);
    expect(leftOut.slice(2)).toEqual([{ client: 'a', address: '10.0.0.1', count: 1 }]);
    jest.advanceTimersByTime(5000);
    expect(leftOut).toHaveLength(3);
  });

  test('begins a second anew with what it is made to report', () => {
    jest.useFakeTimers();
    const leftOut: LeftOut[] = [];
    const sample = new RefusalSample((told) => leftOut.push(told));
    const refuse = (): void => {
      for (let count = 0; count < 11; count += 1) sample.admits('a', '');
    };
    refuse();
    jest.advanceTimersByTime(500);
    sample.flush();
    refuse();
    jest.advanceTimersByTime(999);
    expect(leftOut).toHaveLength(1);
    jest.advanceTimersByTime(1);
    expect(leftOut).toHaveLength(2);
  });

  test('reports refusals beyond the limit of all clients together', () => {
    const leftOut: LeftOut[] = [];
    const sample = new RefusalSample((told) => leftOut.push(told));
    const refused = Array.from({ length: 1_010 }, (_, at) => !sample.admits(`client ${at}`, ''));
    expect(refused.filter(Boolean)).toHaveLength(810);
    // A client with more than its part, though the limit of all was reached before.
    for (let count = 0; count < 12; count += 1) sample.admits('client 300', '');
    sample.flush();
    expect(leftOut).toEqual([
      { client: 'client 300', address: '', count: 3 },
      { client: '', address: '', count: 819 },
    ]);
  });
});
