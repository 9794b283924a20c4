import { describe, expect, jest, test } from '@jest/globals';
import { recordsIn } from '../support/audit-log.ts';
import { useHangingDisk } from '../support/faulty-disk.ts';
import { reportedDuring } from '../support/reported.ts';
import { until } from '../support/until.ts';
import { TICK_MS, turns, useJournals } from './journal-scene.ts';

const disk = useHangingDisk();
const openJournal = useJournals();

describe('records that nobody waits for', () => {
  test('are written together after a tenth of a second', async () => {
    const { journal, directory, add, seals } = await openJournal();
    expect([add('a'), add('b'), add('c')]).toEqual([1, 2, 3]);
    jest.advanceTimersByTime(TICK_MS - 1);
    await turns();
    expect([seals, await recordsIn(directory)]).toEqual([[], []]);
    jest.advanceTimersByTime(1);
    await until(() => seals.length > 0);
    expect(seals).toEqual([3]);
    expect(await recordsIn(directory)).toMatchObject([
      { seq: 1, event: 'a' },
      { seq: 2, event: 'b' },
      { seq: 3, event: 'c' },
    ]);
    expect(journal.failing).toBe(undefined);
  });

  test('are written at once when they are to be written soon', async () => {
    const { journal, add, seals } = await openJournal();
    add('a');
    journal.writeSoon();
    await until(() => seals.length > 0);
    expect(seals).toEqual([1]);
  });

  test('are written with one that somebody waits for', async () => {
    const { add, addAwaited, seals } = await openJournal();
    add('a');
    expect(await addAwaited('b')).toBe(true);
    expect(seals).toEqual([2]);
  });

  test('are written at once when there are 32 KiB of them', async () => {
    const { add, seals } = await openJournal();
    const text = 'x'.repeat(400);
    for (let count = 0; count < 64; count += 1) add(text);
    await turns();
    expect(seals).toEqual([]);
    for (let count = 0; count < 64; count += 1) add(text);
    await until(() => seals.length > 0);
    expect(seals).toEqual([128]);
  });
});

test('records of one turn of the event loop have one seal, and each is confirmed when it is in the file', async () => {
  const { directory, addAwaited, seals, verified } = await openJournal();
  const counts = await Promise.all(
    ['a', 'b', 'c'].map(async (event) => {
      await addAwaited(event);
      return (await recordsIn(directory)).length;
    }),
  );
  expect([counts, seals]).toEqual([[3, 3, 3], [3]]);
  expect(await verified()).toMatchObject({ alterations: [], notes: [], records: 3 });
});

test('records that come while a batch is being written form the next batch', async () => {
  const { addAwaited, seals, verified, add } = await openJournal();
  await disk.hang();
  const first = addAwaited('a');
  await turns();
  const later = [addAwaited('b'), addAwaited('c')];
  add('d');
  await turns();
  disk.release();
  expect(await Promise.all([first, ...later])).toEqual([true, true, true]);
  expect(seals).toEqual([1, 4]);
  expect(await verified()).toMatchObject({ alterations: [], records: 4 });
});

describe('a record whose text cannot be made', () => {
  test('is not confirmed, has its number, and is told as an error; the others are written', async () => {
    const { journal, directory, addAwaited, add, seals, unrecorded, verified } = await openJournal();
    const errors = await reportedDuring(async () => {
      const before = addAwaited('a');
      const failed = new Promise<boolean>((resolve) => {
        const waiter = { recorded: () => resolve(true), unrecorded: () => resolve(false) };
        journal.append(() => {
          throw new Error('no text');
        }, waiter);
      });
      const after = addAwaited('b');
      expect(await Promise.all([before, failed, after])).toEqual([true, false, true]);
    });
    expect([errors, unrecorded, seals]).toEqual([['no text'], [1], [3]]);
    expect(add('c')).toBe(4);
    await journal.close();
    expect((await recordsIn(directory)).map(({ seq, event }) => [seq, event])).toEqual([
      [1, 'a'],
      [2, 'record-failed'],
      [3, 'b'],
      [4, 'c'],
    ]);
    expect((await verified()).alterations).toEqual([]);
  });

  test('is told as an error if nobody waits for it', async () => {
    const { journal, addAwaited, unrecorded } = await openJournal();
    const errors = await reportedDuring(async () => {
      const before = addAwaited('a');
      journal.append(() => {
        throw new Error('no text');
      });
      expect(await Promise.all([before, addAwaited('b')])).toEqual([true, true]);
    });
    expect([errors, unrecorded]).toEqual([['no text'], []]);
  });
});

describe('a segment', () => {
  test('ends with the batch that reaches its size', async () => {
    const { addAwaited, closed, verified } = await openJournal({ segment: { size: 1, age: 1e9 } });
    for (const count of [1, 2, 3]) {
      await addAwaited(`record ${count}`);
      await until(() => closed() === count);
    }
    expect(await verified()).toMatchObject({ alterations: [], records: 3, segments: 4 });
  });

  test.each([
    ['', 0],
    [', also while the clock is set back by a day', 86_400_000],
  ])('ends at its age, whether records come or not%s', async (_title, backMs) => {
    const { addAwaited, closed, verified } = await openJournal({ segment: { size: 1e9, age: 60_000 } });
    await addAwaited('a');
    jest.setSystemTime(Date.now() - backMs);
    jest.advanceTimersByTime(60_000 - TICK_MS);
    await turns();
    expect(closed()).toBe(0);
    // The journal passes over its age while it looks at the file, so one tick may not be enough.
    await until(() => {
      jest.advanceTimersByTime(TICK_MS);
      return closed() === 1;
    });
    await addAwaited('b');
    jest.setSystemTime(Date.now() + 60_000);
    await addAwaited('c');
    await until(() => closed() === 2);
    expect(await verified()).toMatchObject({ alterations: [], records: 3, segments: 3 });
  });

  test('does not end while it has no record, however old it is', async () => {
    const { addAwaited, closed, verified } = await openJournal({ segment: { size: 1e9, age: 1_000 } });
    for (let round = 0; round < 3; round += 1) {
      jest.advanceTimersByTime(2_000);
      await turns();
    }
    expect(closed()).toBe(0);
    await addAwaited('a');
    await until(() => closed() === 1);
    expect((await verified()).segments).toBe(2);
  });

  test('that ends does not hold up the records that come meanwhile', async () => {
    const { addAwaited, closed, seals, verified } = await openJournal({ segment: { size: 1, age: 1e9 } });
    const first = addAwaited('a');
    await until(() => seals.length > 0);
    const second = addAwaited('b');
    expect(await Promise.all([first, second])).toEqual([true, true]);
    await until(() => closed() === 2);
    expect(await verified()).toMatchObject({ alterations: [], notes: [], records: 2, segments: 3 });
  });
});

test('a batch that could not be made is written to another segment', async () => {
  const { chain, journal, addAwaited, states, unrecorded, directory, verified } = await openJournal();
  expect(await addAwaited('a')).toBe(true);
  const write = chain.write.bind(chain);
  chain.write = () => {
    throw new Error('out of memory');
  };
  const errors = await reportedDuring(async () => {
    expect(await addAwaited('b')).toBe(false);
  });
  chain.write = write;
  expect(errors).toEqual(['out of memory']);
  expect([states, unrecorded]).toEqual([
    [{ code: 'batch-failed', reason: 'a batch could not be made' }],
    [1],
  ]);
  expect([chain.writable, journal.failing]).toEqual([false, 'a batch could not be made']);
  jest.advanceTimersByTime(TICK_MS);
  await until(() => journal.failing === undefined);
  expect((await recordsIn(directory)).map(({ event }) => event)).toEqual(['a', 'b']);
  expect(await verified()).toMatchObject({ alterations: [], notes: [], segments: 2 });
});
