import { createHmac, timingSafeEqual } from 'node:crypto';
import { lstat, rename, rm, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { z } from 'zod';
import { reportDefect } from '../../base/expected-errors.ts';
import type { AuditKeys } from '../keys.ts';
import { headOf, linesOf } from '../line.ts';
import { indexName, type Segment, segmentsIn } from './segment.ts';
import { openRegular, readBlocks } from './segment-reader.ts';

/** Bytes of an index file that are read. */
const MOST_BYTES = 4096;

/** Times of the earliest and the latest record, RFC 3339 in UTC. Both empty: there are no records. */
export interface TimeRange {
  readonly from: string;
  readonly to: string;
}

const stored = z.object({
  segment: z.string(),
  size: z.number(),
  mtimeMs: z.number(),
  from: z.string(),
  to: z.string(),
  hmac: z.string(),
});

type Indexed = Omit<z.infer<typeof stored>, 'hmac'>;

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
  const file = join(folder, indexName(first));
  const { size, mtimeMs } = await lstat(join(folder, name));
  const known = await readIndex(file, folder, keys);
  if (known?.segment === name && known.size === size && known.mtimeMs === mtimeMs) return known;
  const range = await rangeIn(join(folder, name));
  const indexed = { segment: name, size, mtimeMs, ...range };
  const text = JSON.stringify({ ...indexed, hmac: hmacOf(indexed, folder, keys) });
  // If it cannot be written, the next search reads the segment again.
  await replaceFile(file, `${text}\n`).catch(reportDefect);
  return range;
}

/**
 * Writes the index of every closed segment that has none.
 * @throws Error if a segment cannot be read
 */
export async function indexClosed(folder: string, keys: AuditKeys): Promise<void> {
  for (const segment of (await segmentsIn(folder)).slice(0, -1)) await timeRangeOf(folder, segment, keys);
}

async function readIndex(file: string, folder: string, keys: AuditKeys): Promise<Indexed | undefined> {
  try {
    const { hmac, ...indexed } = stored.parse(JSON.parse(await readStart(file)));
    const [given, right] = [Buffer.from(hmac), Buffer.from(hmacOf(indexed, folder, keys))];
    return given.length === right.length && timingSafeEqual(given, right) ? indexed : undefined;
  } catch (error) {
    return reportDefect(error);
  }
}

async function readStart(file: string): Promise<string> {
  const handle = await openRegular(file);
  try {
    const { buffer, bytesRead } = await handle.read(Buffer.alloc(MOST_BYTES), 0, MOST_BYTES, 0);
    return buffer.toString('utf8', 0, bytesRead);
  } finally {
    await handle.close();
  }
}

function hmacOf({ segment, size, mtimeMs, from, to }: Indexed, folder: string, { index }: AuditKeys): string {
  const text = JSON.stringify([basename(folder), segment, size, mtimeMs, from, to]);
  return createHmac('sha256', index).update(text).digest('base64url');
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

async function replaceFile(file: string, text: string): Promise<void> {
  const temporary = `${file}.tmp`;
  await rm(temporary, { force: true });
  await writeFile(temporary, text, { mode: 0o600, flag: 'wx' });
  await rename(temporary, file);
}
