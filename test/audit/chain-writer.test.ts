import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { describe, expect, jest, test } from '@jest/globals';
import { LineBuffer } from '../../src/audit/journal/batch.ts';
import { ChainWriter } from '../../src/audit/journal/chain-writer.ts';
import { auditKeys } from '../../src/audit/keys.ts';
import { MOST_BATCH, parseSeal } from '../../src/audit/seal.ts';
import { parseHeader, segmentName } from '../../src/audit/segments/segment.ts';
import { Secret } from '../../src/base/secret.ts';
import { AUDIT_KEY, REPLICA, useFolders } from '../support/audit-log.ts';
import { useJournals } from './journal-scene.ts';

const folder = useFolders();
const openJournal = useJournals();
const keys = auditKeys(new Secret(AUDIT_KEY));

/** First and last record of each seal in a file. */
async function rangesIn(path: string): Promise<number[][]> {
  const seals = (await readFile(path, 'utf8')).split('\n').map(parseSeal);
  return seals.flatMap((seal) => (seal === undefined ? [] : [[seal.first, seal.last]]));
}

describe('a large batch', () => {
  test('has a seal for each part of at most 1 MiB, of whole records', async () => {
    const { add, close, segment, verified } = await openJournal();
    for (let seq = 1; seq <= 5; seq += 1) add('x'.repeat(0.4 * MOST_BATCH));
    await close();
    expect(await rangesIn(segment(1))).toEqual([
      [1, 0],
      [1, 2],
      [3, 4],
      [5, 5],
    ]);
    expect(await verified()).toMatchObject({ alterations: [], notes: [], records: 5 });
  });

  test('has a seal for a record alone that is larger than a part', async () => {
    const { add, close, segment, verified } = await openJournal();
    for (const size of [10, MOST_BATCH, 10, MOST_BATCH]) add('x'.repeat(size));
    await close();
    expect(await rangesIn(segment(1))).toEqual([
      [1, 0],
      [1, 1],
      [2, 2],
      [3, 3],
      [4, 4],
    ]);
    expect(await verified()).toMatchObject({ alterations: [], notes: [], records: 4 });
  });

  test.each([
    [MOST_BATCH, 1],
    [MOST_BATCH + 1, 2],
  ])('of %d bytes has %d seals', async (size, count) => {
    const { add, close, segment } = await openJournal();
    const line = `{"seq":1,"time":"${new Date().toISOString()}","kind":"admin","event":""}\n`;
    add('x'.repeat(MOST_BATCH / 2 - line.length));
    add('x'.repeat(size - MOST_BATCH / 2 - line.length));
    await close();
    expect((await rangesIn(segment(1))).slice(1)).toHaveLength(count);
  });
});

describe('a segment', () => {
  test('names the last record that retention removed, from the next one on', async () => {
    const { chain, addAwaited, segment } = await openJournal();
    await addAwaited('a');
    const retired = { last: 1, hmac: 'h'.repeat(43) };
    chain.retired = retired;
    await chain.nextSegment(2);
    const headers = await Promise.all(
      [segment(1), segment(2)].map(async (path) => {
        const [line = ''] = (await readFile(path, 'utf8')).split('\n');
        return parseHeader(line);
      }),
    );
    expect(headers).toEqual([
      expect.not.objectContaining({ retired: expect.anything() }),
      expect.objectContaining({ first: 2, replica: REPLICA, key: keys.id, retired }),
    ]);
  });

  test('sets aside a file that has its name already', async () => {
    const { chain, addAwaited, segment, verified } = await openJournal();
    await addAwaited('a');
    await writeFile(segment(2), 'not of this chain\n');
    await chain.nextSegment(2);
    expect(await addAwaited('b')).toBe(true);
    const aside = (await readdir(dirname(segment(2)))).filter((name) => name.includes('unsealed'));
    expect(aside).toEqual([expect.stringMatching(/^000000000002/)]);
    expect(await readFile(join(dirname(segment(2)), String(aside[0])), 'utf8')).toBe('not of this chain\n');
    expect((await verified()).records).toBe(2);
  });

  test('that cannot be begun is begun when that is possible again', async () => {
    const { chain, addAwaited, segment, verified } = await openJournal();
    await addAwaited('a');
    await rm(dirname(segment(1)), { recursive: true });
    await writeFile(dirname(segment(1)), '');
    await expect(chain.nextSegment(2)).rejects.toMatchObject({ code: 'ENOTDIR' });
    expect(chain.writable).toBe(false);
    await expect(chain.reopen(2)).rejects.toThrow();
    await rm(dirname(segment(1)));
    await chain.reopen(2);
    expect(chain.writable).toBe(true);
    expect(await addAwaited('b')).toBe(true);
    expect((await verified()).records).toBe(1);
  });

  test('has the size of its file, its age, and its first record', async () => {
    const { chain, addAwaited, segment } = await openJournal();
    await addAwaited('a');
    const { length: size } = await readFile(segment(1));
    jest.setSystemTime(Date.now() + 5_000);
    expect(chain.extent).toEqual({ size, age: 5_000, first: 1 });
    await chain.nextSegment(2);
    expect(chain.extent).toMatchObject({ age: 0, first: 2 });
    expect(chain.extent.size).toBe((await readFile(segment(2))).length);
    expect((await rangesIn(segment(2))).at(0)).toEqual([2, 1]);
  });

  test('that another process continues has the age that it had', async () => {
    const { directory, addAwaited, close, segment } = await openJournal();
    await addAwaited('a');
    await close();
    jest.setSystemTime(Date.now() + 60_000);
    const options = {
      folder: join(directory, REPLICA),
      replica: REPLICA,
      keys,
      signing: undefined,
      sync: false,
    };
    const { chain, recovered } = await ChainWriter.open(options);
    expect([chain.extent.age, chain.extent.first, recovered.nextSeq]).toEqual([60_000, 1, 2]);
    expect(await rangesIn(segment(1))).toEqual([
      [1, 0],
      [1, 1],
      [2, 1],
    ]);
    await chain.close();
  });
});

test('a folder that could not be opened is not kept from the next attempt', async () => {
  const place = join(await folder(), REPLICA);
  await mkdir(place);
  const names = Array.from({ length: 21 }, (_, at) => segmentName(100 + at));
  for (const name of names) await writeFile(join(place, name), 'x\n');
  const options = { folder: place, replica: REPLICA, keys, signing: undefined, sync: false };
  await expect(ChainWriter.open(options)).rejects.toThrow(place);
  const { chain } = await ChainWriter.open(options);
  await chain.close();
});

test('a chain that was closed takes nothing more', async () => {
  const { chain, close, directory } = await openJournal();
  await close();
  const batch = { lines: new LineBuffer(), first: 1, last: 1 };
  const written = await new Promise((resolve) => chain.write(batch, resolve));
  expect(written).toEqual(new Error('there is no segment to write to'));
  await chain.nextSegment(2);
  chain.abandon();
  expect(await readdir(join(directory, REPLICA))).not.toContain('000000000002.jsonl');
  expect([chain.writable, chain.extent.size, await chain.integrityError()]).toEqual([false, 0, undefined]);
});
