import { join } from 'node:path';
import { isNativeError } from 'node:util/types';
import type { AuditKeys } from '../keys.ts';
import { headOf, linesOf } from '../line.ts';
import { replicasIn, type Segment, segmentsIn } from '../segments/segment.ts';
import { type TimeRange, timeRangeOf } from '../segments/time-index.ts';
import { inOrderOfTime } from './merge.ts';
import { isWithin, type Query } from './query.ts';
import { readSealed, type SealedBlock } from './sealed-blocks.ts';
import { AccessMatches, type Found } from './search-join.ts';

export type { Found } from './search-join.ts';

export interface SearchOptions {
  readonly directory: string;
  /** The key in use first; and those that sealed earlier segments. */
  readonly keys: readonly [AuditKeys, ...AuditKeys[]];
  readonly query: Query;
  /** Told of the bytes that were looked at, uncompressed. */
  readonly onBytes: (count: number) => void;
  /** Of something that could not be read; the search goes on with what can. */
  readonly onUnreadable: (message: string) => void;
  /** Of something that was left out and is no fault: the end of a log that is being written. */
  readonly onNote: (message: string) => void;
  /** Of a record whose list was too long to be recorded whole: the identifier may have been in the rest. */
  readonly onCut: () => void;
}

/** The requests that fit and stand under a seal, of all replicas, in order of time. Memory stays flat however large the log is. */
export async function* search(options: SearchOptions): AsyncGenerator<Found, void> {
  const replicas = await replicasIn(options.directory);
  const found = replicas.map((replica) => searchReplica(options, replica));
  yield* inOrderOfTime(found, ({ access }) => access.time);
}

/** A line of the log as it stands there, without its end. */
export interface RawRecord {
  readonly time: string;
  readonly line: string;
}

/** Every record of all replicas that stands under a seal, of any kind, in order of time. */
export async function* allRecords(options: Omit<SearchOptions, 'onCut'>): AsyncGenerator<RawRecord, void> {
  const replicas = await replicasIn(options.directory);
  const records = replicas.map((replica) => recordsOf(options, replica));
  yield* inOrderOfTime(records, ({ time }) => time);
}

async function* searchReplica(options: SearchOptions, replica: string): AsyncGenerator<Found, void> {
  const { query, onBytes, onUnreadable, onCut } = options;
  const folder = join(options.directory, replica);
  const matches = new AccessMatches(query, {
    onCut,
    onUnreadable: (message) => onUnreadable(`${folder}: ${message}`),
  });
  for await (const each of segmentsFor(folder, options)) {
    const { overlapping } = each;
    // What became of a request may stand in a segment in which no other is looked for.
    if (!overlapping && matches.complete) continue;
    for await (const block of sealedBlocks(options, replica, each)) {
      if (!overlapping && matches.complete) break;
      onBytes(block.bytes.length);
      yield* matches.take(block);
    }
    tellUnsealed(options, folder, each, matches.takeUnsealed());
  }
  yield* matches.rest();
}

async function* recordsOf(
  options: Omit<SearchOptions, 'onCut'>,
  replica: string,
): AsyncGenerator<RawRecord, void> {
  const { query, onBytes } = options;
  const folder = join(options.directory, replica);
  for await (const each of segmentsFor(folder, options)) {
    if (!each.overlapping) continue;
    const counts = { unsealed: 0 };
    for await (const block of sealedBlocks(options, replica, each)) {
      onBytes(block.bytes.length);
      yield* recordsWithin(query, block, counts);
    }
    tellUnsealed(options, folder, each, counts.unsealed);
  }
}

function* recordsWithin(
  query: Query,
  { bytes, covers }: SealedBlock,
  counts: { unsealed: number },
): Generator<RawRecord, void> {
  for (const [start, end] of linesOf(bytes)) {
    const head = headOf(bytes, start);
    if (head === undefined || !isWithin(query, head)) continue;
    if (covers(start)) yield { time: head.time, line: bytes.toString('utf8', start, end) };
    else counts.unsealed += 1;
  }
}

function tellUnsealed(
  { onUnreadable }: Pick<SearchOptions, 'onUnreadable'>,
  folder: string,
  { segment }: SearchedSegment,
  count: number,
): void {
  if (count === 0) return;
  const place = join(folder, segment.name);
  onUnreadable(`${place}: ${count} records are not as a seal covers them, and left out: run audit verify`);
}

async function* sealedBlocks(
  { directory, keys, onUnreadable, onNote }: Omit<SearchOptions, 'onCut'>,
  replica: string,
  { segment, growing }: SearchedSegment,
): AsyncGenerator<SealedBlock, void> {
  const path = join(directory, replica, segment.name);
  try {
    yield* readSealed(path, replica, keys, {
      onUnknownKey: (id) =>
        onUnreadable(`${path}: is sealed with key ${id}, and not checked: give it as --key`),
      onUnsealed: (bytes) => {
        const tell = growing ? onNote : onUnreadable;
        tell(`${path}: ${bytes} bytes at its end are under no seal, and left out`);
      },
    });
  } catch (error) {
    onUnreadable(`${path}: cannot be read to its end (${reasonOf(error)}): run audit verify`);
  }
}

interface SearchedSegment {
  readonly segment: Segment;
  /** Whether any record in it may be of the time that is looked for. */
  readonly overlapping: boolean;
  /** Whether it may be written to now. */
  readonly growing: boolean;
}

async function* segmentsFor(
  folder: string,
  { query, keys }: Pick<SearchOptions, 'query' | 'keys'>,
): AsyncGenerator<SearchedSegment, void> {
  const segments = await segmentsIn(folder);
  const anyTime = query.since === undefined && query.until === undefined;
  for (const segment of segments) {
    const growing = segment === segments.at(-1);
    // What cannot be read is told when it is tried.
    const range =
      anyTime || growing ? undefined : await timeRangeOf(folder, segment, keys[0]).catch(() => undefined);
    yield { segment, overlapping: range === undefined || meets(query, range), growing };
  }
}

function meets({ since, until }: Query, { from, to }: TimeRange): boolean {
  return to !== '' && (since === undefined || to >= since) && (until === undefined || from < until);
}

function reasonOf(error: unknown): string {
  return isNativeError(error) ? error.message : String(error);
}
