import { join } from 'node:path';
import { messageOf } from '../../base/error-code.ts';
import { type Finding, finding, type PlacedFinding } from '../findings.ts';
import type { AuditKeys } from '../keys.ts';
import { readSealed, type SealedBlock } from '../segments/sealed-blocks.ts';
import type { Segment } from '../segments/segment.ts';
import type { TimeRange } from '../segments/time-index.ts';
import type { Query } from './query.ts';

export interface ReadOptions {
  readonly directory: string;
  /** The current key first, then those that sealed earlier segments. */
  readonly keys: readonly [AuditKeys, ...AuditKeys[]];
  /** Called for a part of the log that cannot be read or trusted; the search goes on with the rest. */
  readonly onUnreadable: (finding: PlacedFinding) => void;
  /** Called for lines that are left out without being an error: the end of a log that is being written. */
  readonly onNote: (finding: PlacedFinding) => void;
}

export interface SearchedSegment {
  readonly segment: Segment;
  /** True if a gateway may be writing to it. */
  readonly growing: boolean;
}

/** Tells how many records of the segment were left out because no seal covers them as they are. */
export function reportUnsealed(
  { onUnreadable }: Pick<ReadOptions, 'onUnreadable'>,
  replica: string,
  { segment }: SearchedSegment,
  records: number,
): void {
  if (records === 0) return;
  onUnreadable({ ...finding('records-altered', { records }), replica, segment: segment.name, line: 0 });
}

/** The batches of a segment; reports what cannot be read of it. */
export async function* sealedBlocks(
  { directory, keys, onUnreadable, onNote }: ReadOptions,
  replica: string,
  { segment, growing }: SearchedSegment,
): AsyncGenerator<SealedBlock, void> {
  const placed = (found: Finding): PlacedFinding => ({ ...found, replica, segment: segment.name, line: 0 });
  try {
    yield* readSealed({
      file: join(directory, replica, segment.name),
      replica,
      keys,
      onUnknownKey: (key) => onUnreadable(placed(finding('segment-unchecked', { key }))),
      onUnsealed: (bytes) => (growing ? onNote : onUnreadable)(placed(finding('bytes-unsealed', { bytes }))),
    });
  } catch (error) {
    onUnreadable(placed(finding('segment-unreadable', { reason: messageOf(error) })));
  }
}

/** True if a segment with that range may have records in the time range of the query. */
export function overlaps({ since, until }: Query, { from, to }: TimeRange): boolean {
  return to !== '' && (since === undefined || to >= since) && (until === undefined || from < until);
}
