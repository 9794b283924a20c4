import { lstat } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { z } from 'zod';
import { reportDefect } from '../../base/expected-errors.ts';
import type { AuditKeys } from '../keys.ts';
import { headOf, linesOf } from '../line.ts';
import { ChainWalk, walkFile } from './chain-walk.ts';
import { indexName, type Segment } from './segment.ts';
import { headerOf } from './segment-reader.ts';
import { SignedFile } from './signed-file.ts';

/** Times of the earliest and the latest record, RFC 3339 in UTC. Both empty: there are no records. */
interface TimeRange {
  readonly from: string;
  readonly to: string;
}

const indexed = z.strictObject({
  segment: z.string(),
  size: z.number(),
  mtimeMs: z.number(),
  from: z.string(),
  to: z.string(),
  /** `hmac` of the last seal. A file that is a beginning of the segment has another one. */
  end: z.string(),
  /** Id of the key of the segment, and whether it was at hand, so that the records are those that were written. */
  key: z.string(),
  isSealed: z.boolean(),
});

/**
 * The time range of a closed segment, from its index file, or from the segment. In that case the index file is written
 * if the folder allows it. An HMAC protects it, since a forged range would make a search skip the segment. `next`: the
 * segment that continues it; `keys`: the current key first. Undefined: the segment has an integrity error, or the next
 * one does not continue it, so nothing says which times it has.
 * @throws Error if the segment cannot be read
 */
export async function timeRangeOf(
  folder: string,
  segment: Segment,
  next: Segment,
  keys: readonly [AuditKeys, ...AuditKeys[]],
): Promise<TimeRange | undefined> {
  const { name, first } = segment;
  const path = join(folder, name);
  const file = new SignedFile({
    path: join(folder, indexName(first)),
    key: keys[0].index,
    schema: indexed,
    textOf: ({ segment: of, size, mtimeMs, from, to, end, key, isSealed }) =>
      JSON.stringify([basename(folder), of, size, mtimeMs, from, to, end, key, isSealed]),
  });
  const { size, mtimeMs } = await lstat(path);
  const end = (await headerOf(join(folder, next.name)).catch(reportDefect))?.previous;
  if (end === undefined) return undefined;
  const known = await file.trusted();
  if (known?.segment === name && known.size === size && known.mtimeMs === mtimeMs && known.end === end) {
    if (known.isSealed) return known;
    // Without its key, it may be a range of a file that stood there for a moment.
    const isUnknown = keys.every(({ id }) => id !== known.key);
    if (isUnknown && (await headerOf(path))?.key === known.key) return known;
  }
  const range = await rangeIn(folder, segment, keys);
  if (range === undefined || range.end !== end) return undefined;
  // If it cannot be written, the next search reads the segment again.
  await file.write({ segment: name, size, mtimeMs, ...range }).catch(reportDefect);
  return range;
}

/** Reads all records, since a clock may have been set back. */
async function rangeIn(folder: string, { name, first }: Segment, keys: readonly AuditKeys[]) {
  const walk = new ChainWalk({ keys, replica: basename(folder), first });
  const range = { from: '', to: '' };
  let isAltered = false;
  await walkFile(walk, join(folder, name), ({ trust, lines, seal }) => {
    isAltered ||= seal === undefined ? lines.length > 0 : trust === 'refused';
    widen(range, lines);
    return isAltered;
  });
  const end = walk.state.previous;
  return isAltered || walk.isOver
    ? undefined
    : { ...range, end, key: walk.header?.key ?? '', isSealed: walk.keyKnown };
}

function widen(range: { from: string; to: string }, lines: Buffer): void {
  for (const [start] of linesOf(lines)) {
    const time = headOf(lines, start)?.time;
    if (time === undefined) continue;
    if (range.from === '' || time < range.from) range.from = time;
    if (time > range.to) range.to = time;
  }
}
