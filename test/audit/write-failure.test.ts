import { readdir, readFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { describe, expect, jest, test } from '@jest/globals';
import { LineBuffer } from '../../src/audit/journal/batch.ts';
import { openTestAudit, recordsIn, useFolders } from '../support/audit-log.ts';
import { divertWrites, useHangingDisk } from '../support/faulty-disk.ts';
import { until } from '../support/until.ts';
import { DEADLINE_MS, type JournalScene, TICK_MS, turns, useJournals } from './journal-scene.ts';

const disk = useHangingDisk();
const openJournal = useJournals();
const folder = useFolders();
const HANGS = expect.objectContaining({
  code: 'disk-timeout',
  reason: expect.stringContaining(`${DEADLINE_MS} ms`),
});

describe('a disk that hangs', () => {
  test('has until the deadline; then no record is confirmed, and all are written once it goes on', async () => {
    const { journal, addAwaited, states, unrecorded, directory, verified } = await openJournal();
    await disk.hang();
    const first = addAwaited('a');
    await turns();
    const second = addAwaited('b');
    jest.advanceTimersByTime(DEADLINE_MS);
    expect([states, journal.failing]).toEqual([[], undefined]);
    jest.advanceTimersByTime(TICK_MS);
    expect(await Promise.all([first, second])).toEqual([false, false]);
    expect([states, unrecorded]).toEqual([[HANGS], [2]]);
    expect(journal.failing).toBe(states[0]?.reason);

    expect(await addAwaited('c')).toBe(false);
    expect(unrecorded).toEqual([2, 1]);
    jest.advanceTimersByTime(10 * DEADLINE_MS);
    expect(states).toHaveLength(1);
    disk.release();
    await until(() => journal.failing === undefined);
    expect([states, unrecorded]).toEqual([
      [HANGS, undefined],
      [2, 1],
    ]);
    expect(await addAwaited('d')).toBe(true);
    expect((await recordsIn(directory)).map(({ event }) => event)).toEqual(['a', 'b', 'c', 'd']);
    expect(await verified()).toMatchObject({ alterations: [], notes: [], segments: 1 });
  });

  test('is told also if nobody waits for the records', async () => {
    const { journal, add, states, unrecorded } = await openJournal();
    jest.advanceTimersByTime(5 * DEADLINE_MS);
    await turns();
    await disk.hang();
    add('a');
    journal.writeSoon();
    await turns();
    jest.advanceTimersByTime(DEADLINE_MS);
    expect(states).toEqual([]);
    jest.advanceTimersByTime(TICK_MS);
    expect([states, unrecorded]).toEqual([[HANGS], []]);
  });

  test('has as long for a record that came while another was being written', async () => {
    const { addAwaited, states } = await openJournal();
    await disk.hang();
    const first = addAwaited('a');
    await turns();
    jest.advanceTimersByTime(600);
    const second = addAwaited('b');
    jest.advanceTimersByTime(100);
    const third = addAwaited('c');
    disk.release();
    await disk.hang();
    expect(await first).toBe(true);
    await turns();
    jest.advanceTimersByTime(900);
    expect(states).toEqual([]);
    jest.advanceTimersByTime(TICK_MS);
    expect(await Promise.all([second, third])).toEqual([false, false]);
    expect(states).toEqual([HANGS]);
  });

  test('is not taken for one that hangs because this process stood still', async () => {
    const { audit } = await openTestAudit(await folder());
    const written = audit.adminWritten('a', {});
    // The write has begun, and nobody has looked for its answer.
    await turns(1);
    const nothing = new Int32Array(new SharedArrayBuffer(4));
    Atomics.wait(nothing, 0, 0, DEADLINE_MS + 2 * TICK_MS);
    expect(await written).toBe(true);
    expect(audit.counts.failures).toBe(0);
    await audit.close();
  });

  test('does not hold up the end for longer than the deadline', async () => {
    const { close, addAwaited, seals } = await openJournal();
    await disk.hang();
    const first = addAwaited('a');
    await turns();
    const end = close();
    jest.advanceTimersByTime(DEADLINE_MS + TICK_MS);
    await end;
    expect([await first, seals]).toEqual([false, []]);
  });

  test('does not hold up the end for longer where a segment is being begun, or the file is closed', async () => {
    const beginning = await openJournal({ segment: { size: 1, age: 1e9 } });
    const idle = await openJournal();
    await disk.hang();
    const written = beginning.addAwaited('a');
    await turns();
    disk.release();
    await disk.hang();
    expect(await written).toBe(true);
    await Promise.all([beginning.journal.close(), idle.journal.close()]);
    expect([beginning.closed(), beginning.seals]).toEqual([0, [1]]);
  });

  test('does not hold up the end at all once the deadline has passed', async () => {
    const { close, addAwaited } = await openJournal();
    await disk.hang();
    const first = addAwaited('a');
    await turns();
    jest.advanceTimersByTime(DEADLINE_MS + TICK_MS);
    expect(await first).toBe(false);
    await close();
    disk.release();
    await turns();
  });
});

describe('a disk that is full', () => {
  test('leaves nothing of the batch, which is written to the next segment when there is room', async () => {
    const { journal, addAwaited, add, segment, states, unrecorded, directory, verified, closed } =
      await openJournal();
    expect(await addAwaited('a')).toBe(true);
    divertWrites(segment(1), '/dev/full');
    add('b');
    expect(await addAwaited('c')).toBe(false);
    expect(states).toMatchObject([{ code: 'ENOSPC' }]);
    expect(unrecorded).toEqual([1]);
    expect(await addAwaited('d')).toBe(false);
    jest.advanceTimersByTime(TICK_MS);
    await until(() => journal.failing === undefined);
    expect(await addAwaited('e')).toBe(true);
    expect((await recordsIn(directory)).map(({ seq, event }) => [seq, event])).toEqual([
      [1, 'a'],
      [2, 'b'],
      [3, 'c'],
      [4, 'd'],
      [5, 'e'],
    ]);
    expect(await readdir(dirname(segment(1)))).toEqual(
      expect.arrayContaining(['000000000001.jsonl', '000000000002.jsonl']),
    );
    expect([states.length, closed()]).toEqual([2, 0]);
    expect(await verified()).toMatchObject({ alterations: [], notes: [], segments: 2 });
  });

  test('leaves no segment without a record behind', async () => {
    const { journal, addAwaited, segment, directory, verified } = await openJournal();
    divertWrites(segment(1), '/dev/full');
    expect(await addAwaited('a')).toBe(false);
    jest.advanceTimersByTime(TICK_MS);
    await until(() => journal.failing === undefined);
    expect((await recordsIn(directory)).map(({ seq }) => seq)).toEqual([1]);
    expect((await readFile(segment(1), 'utf8')).match(/"segment":/g)).toHaveLength(1);
    expect(await verified()).toMatchObject({ alterations: [], notes: [], segments: 1 });
  });

  test.each<[string, (scene: JournalScene) => Promise<JournalScene>]>([
    [
      'of an earlier process',
      async ({ close, directory }) => {
        await close();
        return openJournal({ directory });
      },
    ],
    [
      'with more seals than that of its header',
      async (scene) => {
        const nothing = { lines: new LineBuffer(), first: 1, last: 0 };
        expect(await new Promise((resolve) => scene.chain.write(nothing, resolve))).toMatchObject({ seq: 0 });
        return scene;
      },
    ],
  ])('does not break the chain where the segment %s has no record: it goes on', async (_, prepare) => {
    const scene = await prepare(await openJournal());
    const { journal, addAwaited, segment, directory, verified } = scene;
    const before = await readFile(segment(1), 'utf8');
    divertWrites(segment(1), '/dev/full');
    expect(await addAwaited('a')).toBe(false);
    jest.advanceTimersByTime(TICK_MS);
    await until(() => journal.failing === undefined);
    expect(await addAwaited('b')).toBe(true);
    expect((await recordsIn(directory)).map(({ event }) => event)).toEqual(['a', 'b']);
    expect((await readFile(segment(1), 'utf8')).startsWith(before)).toBe(true);
    expect(await verified()).toMatchObject({ alterations: [], notes: [], segments: 1, records: 2 });
  });

  test('does not hold up the end', async () => {
    const { close, add, addAwaited, segment, states } = await openJournal();
    divertWrites(segment(1), '/dev/full');
    add('a');
    await close();
    expect(states).toMatchObject([{ code: 'ENOSPC' }]);
    expect(await addAwaited('b')).toBe(false);
  });
});

describe('a disk that takes bytes and cannot make them durable', () => {
  test('confirms no record if records are to survive a crash of the machine', async () => {
    const { journal, addAwaited, segment, states, verified } = await openJournal({ sync: true });
    expect(await addAwaited('a')).toBe(true);
    divertWrites(segment(1), '/dev/null');
    expect(await addAwaited('b')).toBe(false);
    expect(states).toMatchObject([{ reason: expect.stringContaining('fdatasync') }]);
    jest.advanceTimersByTime(TICK_MS);
    await until(() => journal.failing === undefined);
    expect(await addAwaited('c')).toBe(true);
    expect(await verified()).toMatchObject({ alterations: [], notes: [], records: 3 });
  });

  test('is noticed by what is missing in the file, if it is asked for no more than a write', async () => {
    const { addAwaited, segment, states, journal } = await openJournal();
    divertWrites(segment(1), '/dev/null');
    expect(await addAwaited('a')).toBe(true);
    jest.advanceTimersByTime(TICK_MS);
    await until(() => states.length > 0);
    expect(states).toMatchObject([
      { code: 'segment-truncated', reason: expect.stringContaining(segment(1)) },
    ]);
    jest.advanceTimersByTime(TICK_MS);
    await until(() => journal.failing === undefined);
  });

  test('is told at the end of a segment, and the records that follow go to the next one', async () => {
    const { addAwaited, segment, states, journal, closed, seals, directory } = await openJournal({
      segment: { size: 1, age: 1e9 },
    });
    divertWrites(segment(1), '/dev/null');
    expect(await addAwaited('a')).toBe(true);
    await until(() => states.length > 0);
    expect([states, closed(), seals]).toMatchObject([[{ reason: expect.stringContaining('fsync') }], 0, [1]]);
    expect(await addAwaited('b')).toBe(false);
    jest.advanceTimersByTime(TICK_MS);
    await until(() => journal.failing === undefined);
    expect((await recordsIn(directory)).map(({ event }) => event)).toEqual(['b']);
  });
});

describe('the end', () => {
  test('writes what waits, also behind a batch that is being written, and frees the folder', async () => {
    const { close, chain, add, addAwaited, seals, verified } = await openJournal();
    await disk.hang();
    const first = addAwaited('a');
    await turns();
    add('b');
    const end = close();
    disk.release();
    await end;
    expect([await first, seals, chain.writable]).toEqual([true, [1, 2], false]);
    expect(await verified()).toMatchObject({ alterations: [], notes: [], records: 2 });
  });

  test('waits for the segment that is being begun', async () => {
    const { close, addAwaited, add, verified } = await openJournal({
      segment: { size: 1, age: 1e9 },
    });
    await addAwaited('a');
    add('b');
    await close();
    expect(await verified()).toMatchObject({ alterations: [], notes: [], records: 2, segments: 2 });
  });

  test('of an idle journal writes nothing', async () => {
    const { close, seals, chain } = await openJournal();
    await close();
    expect([seals, chain.writable, jest.getTimerCount()]).toEqual([[], false, 0]);
  });
});

describe('keys that are to be stored before the records under them', () => {
  /** Keys that are stored, or cannot be, when a test says so. */
  function keyStore() {
    let attempt: PromiseWithResolvers<void> | undefined;
    let asked = 0;
    return {
      asked: () => asked,
      keysReady: (): Promise<void> | undefined => {
        asked += 1;
        return attempt?.promise;
      },
      /** From now on keys are to be stored, in an attempt that a test ends. */
      begin: (): PromiseWithResolvers<void> => {
        attempt = Promise.withResolvers<void>();
        return attempt;
      },
      end: () => {
        attempt = undefined;
      },
    };
  }
  const GONE = Object.assign(new Error('the folder is gone'), { code: 'pseudonym-keys' });

  test('hold their records up, which are written once', async () => {
    const store = keyStore();
    const { addAwaited, directory, states, verified } = await openJournal(store);
    const { resolve } = store.begin();
    const first = addAwaited('a');
    await until(() => store.asked() === 1);
    const second = addAwaited('b');
    jest.advanceTimersByTime(5 * TICK_MS);
    await turns();
    expect([store.asked(), await recordsIn(directory)]).toEqual([1, []]);
    store.end();
    resolve();
    expect(await Promise.all([first, second])).toEqual([true, true]);
    expect((await recordsIn(directory)).map(({ event }) => event)).toEqual(['a', 'b']);
    expect([states, await verified()]).toMatchObject([[], { alterations: [], records: 2 }]);
  });

  test('are asked for again if more were made meanwhile', async () => {
    const store = keyStore();
    const { addAwaited } = await openJournal(store);
    const first = store.begin();
    const record = addAwaited('a');
    await until(() => store.asked() === 1);
    const second = store.begin();
    first.resolve();
    await until(() => store.asked() === 2);
    store.end();
    second.resolve();
    expect(await record).toBe(true);
  });

  test('and cannot be: no record is confirmed, and each is written when that is possible again', async () => {
    const store = keyStore();
    const { addAwaited, journal, states, unrecorded, directory } = await openJournal(store);
    const failed = store.begin();
    const record = addAwaited('a');
    await until(() => store.asked() === 1);
    failed.reject(GONE);
    expect(await record).toBe(false);
    const state = { code: 'pseudonym-keys', reason: GONE.message };
    expect([states, unrecorded, journal.failing]).toEqual([[state], [1], GONE.message]);
    const again = store.begin();
    jest.advanceTimersByTime(TICK_MS);
    jest.advanceTimersByTime(TICK_MS);
    expect(store.asked()).toBe(2);
    again.reject(GONE);
    await turns();
    expect(states).toEqual([state]);
    store.end();
    jest.advanceTimersByTime(TICK_MS);
    await until(() => journal.failing === undefined);
    expect(states).toEqual([state, undefined]);
    expect((await recordsIn(directory)).map(({ event }) => event)).toEqual(['a']);
  });

  test('for longer than the deadline: no record is confirmed, and all are written then', async () => {
    const store = keyStore();
    const { addAwaited, journal, directory } = await openJournal(store);
    const { resolve } = store.begin();
    const record = addAwaited('a');
    await until(() => store.asked() === 1);
    jest.advanceTimersByTime(DEADLINE_MS + TICK_MS);
    expect(await record).toBe(false);
    store.end();
    resolve();
    await until(() => journal.failing === undefined);
    expect((await recordsIn(directory)).map(({ event }) => event)).toEqual(['a']);
  });

  test('and cannot be: the end is not held up, and frees the folder', async () => {
    const store = keyStore();
    const { addAwaited, close, directory } = await openJournal(store);
    const failed = store.begin();
    const record = addAwaited('a');
    await until(() => store.asked() === 1);
    failed.reject(GONE);
    expect(await record).toBe(false);
    await close();
    const next = await openTestAudit(directory);
    await next.audit.close();
  });
});
