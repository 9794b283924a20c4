import { join } from 'node:path';
import { reportDefect } from '../../base/expected-errors.ts';
import type { PlacedFinding } from '../findings.ts';
import type { AuditKeys } from '../keys.ts';
import { type Segment, segmentsIn } from '../segments/segment.ts';
import { timeRangeOf } from '../segments/time-index.ts';
import type { PseudonymReader } from './pseudonym-reader.ts';
import { LATEST, type Query } from './query.ts';

export interface ReadOptions {
  readonly directory: string;
  /** The current key first, then those that sealed earlier segments. */
  readonly keys: readonly [AuditKeys, ...AuditKeys[]];
  /** Called for each block that was read: its bytes, uncompressed, and how many bytes of the file it took. */
  readonly onBytes: (count: number, stored: number) => void;
  /** Called for a file of the log that is not read, since nothing in it can count. */
  readonly onSkipped?: (file: string) => void;
  /** Called for a part of the log that cannot be read or trusted; the search goes on with the rest. */
  readonly onUnreadable: (finding: PlacedFinding) => void;
  /** Called for lines that are left out without being an error: the end of a log that is being written. */
  readonly onNote: (finding: PlacedFinding) => void;
  /** Reveals values that are recorded as pseudonyms; left out: they stay as they are. */
  readonly pseudonyms?: PseudonymReader | undefined;
}

export interface SearchedSegment {
  /** Name of its folder. */
  readonly replica: string;
  readonly segment: Segment;
  /** The segment that continues it; undefined: a gateway may be writing to it. */
  readonly next: Segment | undefined;
  /** True if it may have records in the time range that is searched. */
  readonly isOverlapping: boolean;
  /** No record in it is newer. */
  readonly to: string;
}

/** The segments of one process's log in their order. `isDated`: when each of them ends is of use. */
export async function* searchedSegments(
  { directory, keys }: Pick<ReadOptions, 'directory' | 'keys'>,
  replica: string,
  { since = '', until }: Pick<Query, 'since' | 'until'>,
  isDated = since !== '' || until !== undefined,
): AsyncGenerator<SearchedSegment, void> {
  const folder = join(directory, replica);
  const segments = await segmentsIn(folder);
  for (const [index, segment] of segments.entries()) {
    const next = segments[index + 1];
    // If the segment cannot be read, reading it reports that.
    const range =
      isDated && next !== undefined
        ? await timeRangeOf(folder, segment, next, keys).catch(reportDefect)
        : undefined;
    const { from, to } = range ?? { from: '', to: LATEST };
    const isOverlapping = to !== '' && to >= since && (until === undefined || from < until);
    yield { replica, segment, next, isOverlapping, to };
  }
}
