import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { zstdCompressSync } from 'node:zlib';
import { expect, test } from '@jest/globals';
import { LONGEST_LINE, readBlocks } from '../../src/audit/segments/segment-reader.ts';
import { useFolders } from '../support/audit-log.ts';

const folder = useFolders();

const FORMS = [
  ['plain', '.jsonl', (text: string) => Buffer.from(text)],
  ['compressed', '.jsonl.zst', (text: string) => zstdCompressSync(text)],
] as const;

/** A line of so many bytes, which depend on their place in it and on `first`. */
function lineOf(bytes: number, first = 0): string {
  const numbers = Array.from({ length: Math.ceil(bytes / 6) }, (_, at) =>
    String(first + at).padStart(6, '0'),
  );
  return `${numbers.join('').slice(0, bytes - 1)}\n`;
}

/** Each block's text and whether it is whole. */
async function blocksOf(file: string): Promise<[string, boolean][]> {
  const blocks: [string, boolean][] = [];
  for await (const { bytes, whole } of readBlocks(file)) blocks.push([bytes.toString(), whole]);
  return blocks;
}

test.each(FORMS)(
  'reads lines of up to 1 MiB from a %s segment, in blocks that end with a line',
  async (_form, ending, stored) => {
    const text = [100, 200_000, 40_000, 600_000, LONGEST_LINE, 70_000]
      .map((bytes, at) => lineOf(bytes, at))
      .join('');
    const file = join(await folder(), `0${ending}`);
    await writeFile(file, stored(text));
    const blocks = await blocksOf(file);
    expect(blocks.map(([block]) => block).join('') === text).toBe(true);
    expect(blocks.pop()).toEqual(['', false]);
    expect(blocks.filter(([block, whole]) => !whole || !block.endsWith('\n'))).toHaveLength(0);
  },
);

test.each(FORMS)(
  'ends a %s segment at a line that is longer, which is not whole',
  async (_form, ending, stored) => {
    const file = join(await folder(), `0${ending}`);
    await writeFile(file, stored(`${lineOf(100)}${lineOf(2 * LONGEST_LINE)}${lineOf(100)}`));
    const blocks = await blocksOf(file);
    expect(blocks.map(([, whole]) => whole)).toEqual([true, false]);
    expect(blocks[1]?.[0].length).toBeGreaterThan(LONGEST_LINE - 100);
    expect(blocks[1]?.[0].length).toBeLessThan(LONGEST_LINE + 2 ** 16);
  },
);
