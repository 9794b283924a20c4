import { join } from 'node:path';
import { reportDefect } from '../../base/expected-errors.ts';
import { finding } from '../findings.ts';
import { parseAdmin, type RetiredEnd } from '../segments/admin-records.ts';
import { ChainWalk, type WalkedBatch, walkFile } from '../segments/chain-walk.ts';
import { type Segment, type SegmentHeader, segmentsIn } from '../segments/segment.ts';
import { headerOf } from '../segments/segment-reader.ts';
import type { Query } from './query.ts';
import { type ReadOptions, searchedSegments } from './searched-segments.ts';

/**
 * Reports that the log of a process begins after record 1, if the time range reaches back to before that.
 * @throws Error if the folder cannot be read
 */
export async function checkBeginning(
  options: ReadOptions,
  replica: string,
  query: Pick<Query, 'since' | 'until'>,
): Promise<void> {
  const folder = join(options.directory, replica);
  const segments = await segmentsIn(folder);
  const [oldest] = segments;
  if (oldest === undefined || oldest.first === 1) return;
  // The search itself reports a segment that cannot be read; a running gateway may just have removed this one.
  const header = await headerOf(join(folder, oldest.name)).catch(reportDefect);
  if (header === undefined || header.opened <= (query.since ?? '')) return;
  const { first } = oldest;
  const { opened, previous: hmac } = header;
  const retirement = await retirementOf(options, replica, segments, { last: first - 1, hmac });
  if (retirement === undefined) {
    const missing = finding('segment-missing', { last: first - 1 });
    options.onUnreadable({ ...missing, replica, segment: oldest.name, line: 0 });
    return;
  }
  const { segment, key, isSealed } = retirement;
  // Anybody can have written that. A search in the segment reports the same itself.
  if (!isSealed && !(await isSearched(options, replica, segment, query))) {
    const unchecked = finding('segment-unchecked', { key });
    options.onUnreadable({ ...unchecked, replica, segment: segment.name, line: 0 });
  }
  options.onNote({ ...finding('records-retired', { first, opened }), replica, segment: '', line: 0 });
}

async function isSearched(
  options: ReadOptions,
  replica: string,
  { first }: Segment,
  query: Pick<Query, 'since' | 'until'>,
): Promise<boolean> {
  for await (const { segment, isOverlapping } of searchedSegments(options, replica, query)) {
    if (segment.first === first) return isOverlapping;
  }
  return false;
}

/** Where the log says that its oldest records were removed for their age. */
interface FoundRetirement {
  readonly segment: Segment;
  /** Id of the key that its header names. */
  readonly key: string;
  /** False: its key is not at hand. */
  readonly isSealed: boolean;
}

/**
 * Finds the header or record that says that the records up to `end`, before the oldest segment, were removed for their
 * age; undefined: there is none. One under a seal that was checked comes first.
 */
async function retirementOf(
  { directory, keys, onBytes }: ReadOptions,
  replica: string,
  segments: readonly Segment[],
  end: RetiredEnd,
): Promise<FoundRetirement | undefined> {
  let unchecked: FoundRetirement | undefined;
  let later: SegmentHeader | undefined;
  for (const segment of segments.toReversed()) {
    const file = join(directory, replica, segment.name);
    const header = await headerOf(file).catch(reportDefect);
    const mayTell = header !== undefined && mayHaveRetired(header, later, end);
    later = header;
    if (!mayTell) continue;
    const found: WalkedBatch['trust'][] = [];
    const walk = new ChainWalk({ keys, replica, first: segment.first });
    const find = (batch: WalkedBatch): boolean => {
      // When a segment is begun, the one before it is still there: its header cannot say that of itself.
      const ends = retiredIn(batch, segment !== segments[0]);
      if (ends.some(({ last, hmac }) => last === end.last && hmac === end.hmac)) found.push(batch.trust);
      return found.length > 0;
    };
    await walkFile(walk, file, find, (count) => onBytes(count, 0)).catch(reportDefect);
    const isSealed = found.includes('sealed');
    if (isSealed) return { segment, key: header.key, isSealed };
    if (found.length > 0) unchecked ??= { segment, key: header.key, isSealed };
  }
  return unchecked;
}

/**
 * True if the end can have been retired before the segment was closed, and was not before it was begun, unless its
 * header names just that end. A header names the last retirement before it; after a change of the key it may not.
 */
function mayHaveRetired(
  { key, retired }: SegmentHeader,
  later: SegmentHeader | undefined,
  { last }: RetiredEnd,
): boolean {
  if (retired !== undefined && retired.last > last) return false;
  return later?.key !== key || (later.retired !== undefined && later.retired.last >= last);
}

/** The ends of retired segments that a batch names, if it is as its seal says. */
function retiredIn(
  { trust, line, header, admin, uncheckedAdmin }: WalkedBatch,
  hasHeader: boolean,
): RetiredEnd[] {
  if (trust === 'refused') return [];
  const records = [...admin, ...uncheckedAdmin].map((each) => parseAdmin(each.line));
  const retired = records.filter((record) => record?.event === 'segment-retired');
  // The header is under the seal of the first batch only.
  return hasHeader && line === 1 && header?.retired !== undefined ? [header.retired, ...retired] : retired;
}
