import { lstat } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { z } from 'zod';
import { reportDefect } from '../../base/expected-errors.ts';
import type { AuditKeys } from '../keys.ts';
import { headOf, linesOf } from '../line.ts';
import { indexName, type Segment } from './segment.ts';
import { readBlocks } from './segment-reader.ts';
import { SignedFile } from './signed-file.ts';

/** Times of the earliest and the latest record, RFC 3339 in UTC. Both empty: there are no records. */
export interface TimeRange {
  readonly from: string;
  readonly to: string;
}

const indexed = z.strictObject({
  segment: z.string(),
  size: z.number(),
  mtimeMs: z.number(),
  from: z.string(),
  to: z.string(),
});

/**
 * The time range of a closed segment, from its index file, or from the segment. In that case the index file is written
 * if the folder allows it. An HMAC protects it, since a forged range would make a search skip the segment.
 * @throws Error if the segment cannot be read
 */
export async function timeRangeOf(
  folder: string,
  { name, first }: Segment,
  keys: AuditKeys,
): Promise<TimeRange> {
  const file = new SignedFile({
    path: join(folder, indexName(first)),
    key: keys.index,
    schema: indexed,
    textOf: ({ segment, size, mtimeMs, from, to }) =>
      JSON.stringify([basename(folder), segment, size, mtimeMs, from, to]),
  });
  const { size, mtimeMs } = await lstat(join(folder, name));
  const known = await file.trusted();
  if (known?.segment === name && known.size === size && known.mtimeMs === mtimeMs) return known;
  const range = await rangeIn(join(folder, name));
  // If it cannot be written, the next search reads the segment again.
  await file.write({ segment: name, size, mtimeMs, ...range }).catch(reportDefect);
  return range;
}

/** Reads all records, since a clock may have been set back. */
async function rangeIn(file: string): Promise<TimeRange> {
  let from = '';
  let to = '';
  for await (const { bytes, whole } of readBlocks(file)) {
    if (!whole) continue;
    for (const [start] of linesOf(bytes)) {
      const time = headOf(bytes, start)?.time;
      if (time === undefined) continue;
      if (from === '' || time < from) from = time;
      if (time > to) to = time;
    }
  }
  return { from, to };
}
