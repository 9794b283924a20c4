import { join } from 'node:path';
import { isNativeError } from 'node:util/types';
import { AccessMatches, type Found } from './access-matches.ts';
import type { AuditKeys } from './keys.ts';
import { inOrderOfTime } from './merge.ts';
import { isWithin, type Query } from './query.ts';
import { headOf, linesOf } from './raw-line.ts';
import { replicasIn, type Segment, segmentsIn } from './segment.ts';
import { readBlocks } from './segment-reader.ts';
import { type TimeRange, timeRangeOf } from './time-index.ts';

export type { Found } from './access-matches.ts';

export interface SearchOptions {
  readonly directory: string;
  readonly keys: AuditKeys;
  readonly query: Query;
  /** Told of the bytes that were looked at, uncompressed. */
  readonly onBytes: (count: number) => void;
  /** Of something that could not be read; the search goes on with what can. */
  readonly onUnreadable: (message: string) => void;
  /** Of a record whose list was too long to be recorded whole: the identifier may have been in the rest. */
  readonly onCut: () => void;
}

/** The requests that fit, of all replicas, in order of time. Memory stays flat however large the log is. */
export async function* search(options: SearchOptions): AsyncGenerator<Found, void> {
  const replicas = await replicasIn(options.directory);
  const found = replicas.map((replica) => searchReplica(options, join(options.directory, replica)));
  yield* inOrderOfTime(found, ({ access }) => access.time);
}

/** A line of the log as it stands there, without its end. */
export interface RawRecord {
  readonly time: string;
  readonly line: string;
}

/** Every record of all replicas, of any kind, in order of time. */
export async function* allRecords(options: Omit<SearchOptions, 'onCut'>): AsyncGenerator<RawRecord, void> {
  const replicas = await replicasIn(options.directory);
  const records = replicas.map((replica) => recordsOf(options, join(options.directory, replica)));
  yield* inOrderOfTime(records, ({ time }) => time);
}

async function* searchReplica(options: SearchOptions, folder: string): AsyncGenerator<Found, void> {
  const { query, onBytes, onUnreadable, onCut } = options;
  const matches = new AccessMatches(query, {
    onCut,
    onUnreadable: (message) => onUnreadable(`${folder}: ${message}`),
  });
  for await (const { segment, overlapping } of segmentsFor(folder, options)) {
    // What became of a request may stand in a segment in which no other is looked for.
    if (!overlapping && matches.complete) continue;
    for await (const bytes of wholeBlocks(folder, segment, onUnreadable)) {
      if (!overlapping && matches.complete) break;
      onBytes(bytes.length);
      yield* matches.take(bytes);
    }
  }
  yield* matches.rest();
}

async function* recordsOf(
  options: Omit<SearchOptions, 'onCut'>,
  folder: string,
): AsyncGenerator<RawRecord, void> {
  const { query, onBytes, onUnreadable } = options;
  for await (const { segment, overlapping } of segmentsFor(folder, options)) {
    if (!overlapping) continue;
    for await (const bytes of wholeBlocks(folder, segment, onUnreadable)) {
      onBytes(bytes.length);
      for (const [start, end] of linesOf(bytes)) {
        const head = headOf(bytes, start);
        if (head === undefined || !isWithin(query, head)) continue;
        yield { time: head.time, line: bytes.toString('utf8', start, end) };
      }
    }
  }
}

async function* wholeBlocks(
  folder: string,
  { name }: Segment,
  onUnreadable: SearchOptions['onUnreadable'],
): AsyncGenerator<Buffer, void> {
  const path = join(folder, name);
  try {
    for await (const { bytes, whole } of readBlocks(path)) if (whole) yield bytes;
  } catch (error) {
    onUnreadable(`${path}: cannot be read to its end (${reasonOf(error)}): run audit verify`);
  }
}

/** The segments, and whether any record in each may be of the time that is looked for. */
async function* segmentsFor(
  folder: string,
  { query, keys }: Pick<SearchOptions, 'query' | 'keys'>,
): AsyncGenerator<{ readonly segment: Segment; readonly overlapping: boolean }, void> {
  const segments = await segmentsIn(folder);
  const anyTime = query.since === undefined && query.until === undefined;
  for (const segment of segments) {
    const growing = segment === segments.at(-1);
    // What cannot be read is told when it is tried.
    const range =
      anyTime || growing ? undefined : await timeRangeOf(folder, segment, keys).catch(() => undefined);
    yield { segment, overlapping: range === undefined || meets(query, range) };
  }
}

function meets({ since, until }: Query, { from, to }: TimeRange): boolean {
  return to !== '' && (since === undefined || to >= since) && (until === undefined || from < until);
}

function reasonOf(error: unknown): string {
  return isNativeError(error) ? error.message : String(error);
}
