import { z } from 'zod';
import { parseJson } from '../../base/json.ts';
import { LONGEST_NAME } from '../replica-name.ts';
import { foldersIn, MOST_SEQ } from '../segments/segment.ts';
import { checkBeginning } from './log-beginning.ts';
import { type Found, LATEST, type Query, timeOf } from './query.ts';
import { sealedBlocks } from './sealed-blocks.ts';
import { SearchJoin, type SearchOptions } from './search.ts';
import { type ReadOptions, type SearchedSegment, searchedSegments } from './searched-segments.ts';

export interface PageOptions extends SearchOptions {
  /** Results of one page at most. */
  readonly limit: number;
  /** The results behind this position; undefined: from the newest on. */
  readonly after: Position | undefined;
  /**
   * Time in milliseconds after which no further segment is begun, once the search has come further back. Then an outcome
   * that is not in the next segment is left out.
   */
  readonly budgetMs: number;
  /** A clock, in milliseconds. */
  readonly now: () => number;
}

/** A page of results, the newest first. */
export interface Page {
  readonly found: readonly Found[];
  /** Where the next page begins; undefined: the whole time range was searched. */
  readonly next: Position | undefined;
  /** Number of records that were read. */
  readonly records: number;
}

/**
 * The next page of what matches in the logs of all processes and is under a seal, the newest first. Segments are read
 * from the newest to the oldest, each from its beginning, since a compressed one has no other. Memory use does not
 * depend on the size of the log.
 * @throws Error if a directory cannot be read
 */
export async function searchPage(options: PageOptions): Promise<Page> {
  const { limit, after, budgetMs, now } = options;
  const begun = now();
  const query = upTo(options.query, after);
  const from = after?.time ?? query.until ?? LATEST;
  const newest = new Newest(limit, after);
  let records = 0;
  for (const segment of await segmentsToRead(options, query)) {
    if (newest.isDecided(segment.to)) break;
    const to = segment.to < from ? segment.to : from;
    if (now() - begun > budgetMs && to < from) {
      return newest.page({ time: to, folder: '', seq: 0 }, records);
    }
    const isInTime = (): boolean => now() - begun <= budgetMs;
    records += await readSegment({ ...options, query }, segment, newest, isInTime);
  }
  const page = newest.page(undefined, records);
  // Only the last page reaches back to there.
  const folders = page.next === undefined ? await foldersIn(options.directory, query.replica) : [];
  for (const folder of folders) await checkBeginning(options, folder, query);
  return page;
}

/** The query without what is newer than the position. */
function upTo(query: Query, after: Position | undefined): Query {
  if (after === undefined) return query;
  const until = new Date(Date.parse(after.time) + 1).toISOString();
  return query.until !== undefined && query.until < until ? query : { ...query, until };
}

interface DatedSegment extends SearchedSegment {
  /** The segment that continues it. */
  readonly later: DatedSegment | undefined;
}

/** The segments that may have matching records, those with the newest records first. */
export async function segmentsToRead(
  options: Pick<ReadOptions, 'directory' | 'keys'>,
  query: Query,
): Promise<DatedSegment[]> {
  const dated: DatedSegment[] = [];
  for (const replica of await foldersIn(options.directory, query.replica)) {
    const segments: SearchedSegment[] = [];
    for await (const each of searchedSegments(options, replica, query, true)) segments.push(each);
    let later: DatedSegment | undefined;
    for (const each of segments.reverse()) {
      later = { ...each, later };
      dated.push(later);
    }
  }
  return dated
    .filter(({ isOverlapping }) => isOverlapping)
    .sort((a, b) => compareNewestFirst(startOf(a), startOf(b)));
}

function startOf({ to, replica, segment }: SearchedSegment): Position {
  return { time: to, folder: replica, seq: segment.first };
}

/** Reads a segment, and of those that continue it as much as has missing outcomes; returns how many records it has. */
async function readSegment(
  options: PageOptions,
  dated: DatedSegment,
  newest: Newest,
  isInTime: () => boolean,
): Promise<number> {
  const { replica, segment } = dated;
  const joined = new SearchJoin({ ...options, inAnyOrder: true }, replica);
  let last = segment.first - 1;
  for await (const block of sealedBlocks(options, dated)) {
    last = Math.max(last, block.last);
    for (const found of joined.take(block)) newest.add(replica, found);
  }
  for await (const found of laterOutcomes(options, dated, joined, isInTime)) newest.add(replica, found);
  for (const found of joined.rest()) newest.add(replica, found);
  return last - segment.first + 1;
}

/** Reads the segments that continue one until no outcome is missing, but only the next one when the time is over. */
async function* laterOutcomes(
  options: PageOptions,
  { later: next }: DatedSegment,
  joined: SearchJoin,
  isInTime: () => boolean,
): AsyncGenerator<Found, void> {
  for (let later = next; later !== undefined && !joined.complete; { later } = later) {
    if (later !== next && !isInTime()) return;
    for await (const block of sealedBlocks(options, later)) {
      yield* joined.take(block, true);
      if (joined.complete) break;
    }
  }
}

interface Placed extends Position {
  readonly found: Found;
}

/** Keeps the newest results behind a position: one more than a page has, which shows that there are more. */
class Newest {
  readonly #limit: number;
  readonly #after: Position | undefined;
  #kept: Placed[] = [];

  constructor(limit: number, after: Position | undefined) {
    this.#limit = limit;
    this.#after = after;
  }

  add(folder: string, found: Found): void {
    const { seq } = 'event' in found ? found.event : found.access;
    const placed = { time: timeOf(found), folder, seq, found };
    if (this.#after !== undefined && compareNewestFirst(placed, this.#after) <= 0) return;
    this.#kept.push(placed);
    if (this.#kept.length > 2 * this.#limit + 2) this.#order();
  }

  /** True if the page is full, and records up to `to` are older than all of it. */
  isDecided(to: string): boolean {
    this.#order();
    const last = this.#kept[this.#limit];
    return last !== undefined && to < last.time;
  }

  /** `until`: only what comes before this position is decided; undefined: everything is. */
  page(until: Position | undefined, records: number): Page {
    this.#order();
    const kept = this.#kept.filter((each) => until === undefined || compareNewestFirst(each, until) < 0);
    const page = kept.slice(0, this.#limit);
    const next = kept.length > page.length ? page.at(-1) : until;
    return {
      found: page.map(({ found }) => found),
      next: next && { time: next.time, folder: next.folder, seq: next.seq },
      records,
    };
  }

  #order(): void {
    this.#kept.sort(compareNewestFirst).splice(this.#limit + 1);
  }
}

/**
 * A place in the whole log, newest first: by time, and at one time by the folder of the process and the number of the
 * record. A search goes on with what lies behind it, so records that are written meanwhile do not shift the pages.
 */
export interface Position {
  /** RFC 3339 in UTC with milliseconds. */
  readonly time: string;
  /** Name of the folder; empty: before all records of that time. */
  readonly folder: string;
  readonly seq: number;
}

const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;
const LONGEST_CURSOR = 512;

const stored = z.tuple([
  z
    .string()
    .regex(TIME)
    .refine((time) => !Number.isNaN(Date.parse(time))),
  z.string().max(LONGEST_NAME),
  z.int().min(0).max(MOST_SEQ),
]);

/** The text of a position for the client that asks for the next page. */
export function cursorOf({ time, folder, seq }: Position): string {
  return Buffer.from(JSON.stringify([time, folder, seq])).toString('base64url');
}

/** Undefined: the text is not a cursor. */
export function parseCursor(text: string): Position | undefined {
  if (text.length > LONGEST_CURSOR || !/^[\w-]+$/.test(text)) return undefined;
  const { data } = stored.safeParse(parseJson(Buffer.from(text, 'base64url').toString('utf8')));
  if (data === undefined) return undefined;
  const [time, folder, seq] = data;
  return { time, folder, seq };
}

/** Negative if `a` comes before `b`. */
function compareNewestFirst(a: Position, b: Position): number {
  if (a.time !== b.time) return a.time > b.time ? -1 : 1;
  if (a.folder !== b.folder) return a.folder < b.folder ? -1 : 1;
  return b.seq - a.seq;
}
