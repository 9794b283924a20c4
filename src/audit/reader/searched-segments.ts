import { join } from 'node:path';
import { messageOf } from '../../base/error-code.ts';
import type { AuditKeys } from '../keys.ts';
import type { Segment } from '../segments/segment.ts';
import type { TimeRange } from '../segments/time-index.ts';
import type { Query } from './query.ts';
import { readSealed, type SealedBlock } from './sealed-blocks.ts';

export interface ReadOptions {
  readonly directory: string;
  /** The current key first, then those that sealed earlier segments. */
  readonly keys: readonly [AuditKeys, ...AuditKeys[]];
  /** Called for a part of the log that cannot be read or trusted; the search goes on with the rest. */
  readonly onUnreadable: (message: string) => void;
  /** Called for lines that are left out without being an error: the end of a log that is being written. */
  readonly onNote: (message: string) => void;
}

export interface SearchedSegment {
  readonly segment: Segment;
  /** True if a gateway may be writing to it. */
  readonly growing: boolean;
}

/** Tells how many records of the segment were left out because no seal covers them as they are. */
export function reportUnsealed(
  { onUnreadable }: Pick<ReadOptions, 'onUnreadable'>,
  folder: string,
  { segment }: SearchedSegment,
  count: number,
): void {
  if (count === 0) return;
  const place = join(folder, segment.name);
  onUnreadable(`${place}: ${count} records are not as a seal covers them, and left out: run audit verify`);
}

/** The batches of a segment; reports what cannot be read of it. */
export async function* sealedBlocks(
  { directory, keys, onUnreadable, onNote }: ReadOptions,
  replica: string,
  { segment, growing }: SearchedSegment,
): AsyncGenerator<SealedBlock, void> {
  const path = join(directory, replica, segment.name);
  try {
    yield* readSealed({
      file: path,
      replica,
      keys,
      onUnknownKey: (id) =>
        onUnreadable(`${path}: is sealed with key ${id}, and not checked: give it as --key`),
      onUnsealed: (bytes) => {
        const tell = growing ? onNote : onUnreadable;
        tell(`${path}: ${bytes} bytes at its end are under no seal, and left out`);
      },
    });
  } catch (error) {
    onUnreadable(`${path}: cannot be read to its end (${messageOf(error)}): run audit verify`);
  }
}

/** True if a segment with that range may have records in the time range of the query. */
export function overlaps({ since, until }: Query, { from, to }: TimeRange): boolean {
  return to !== '' && (since === undefined || to >= since) && (until === undefined || from < until);
}
