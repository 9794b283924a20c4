import { headOf, linesOf } from '../line.ts';
import { foldersIn } from '../segments/segment.ts';
import { NO_PSEUDONYMS } from './pseudonym-reader.ts';
import { type Found, isWithin, timeOf } from './query.ts';
import { blocksOf, type SealedBlock } from './sealed-blocks.ts';
import { SearchJoin, type SearchOptions } from './search-join.ts';

/**
 * Returns the matching records under a seal from the logs of all processes, in order of time. Memory use does not depend
 * on the size of the log.
 * @throws Error if a directory cannot be read
 */
export async function* search(options: SearchOptions): AsyncGenerator<Found, void> {
  const folders = await foldersIn(options.directory, options.query.replica);
  const found = folders.map((name) => searchLog(options, name));
  yield* inOrderOfTime(found, timeOf);
}

/** A line of the log without its line end: as it is there, with the values of pseudonyms whose keys are known. */
interface RawRecord {
  readonly time: string;
  readonly line: string;
}

/**
 * The records of the replica and in the time range of the query that are under a seal, in order of time; its other
 * criteria do not count.
 * @throws Error if a directory cannot be read
 */
export async function* allRecords(options: Omit<SearchOptions, 'onCut'>): AsyncGenerator<RawRecord, void> {
  const folders = await foldersIn(options.directory, options.query.replica);
  const records = folders.map((name) => recordsOf(options, name));
  yield* inOrderOfTime(records, ({ time }) => time);
}

async function* searchLog(options: SearchOptions, replica: string): AsyncGenerator<Found, void> {
  const joined = new SearchJoin(options, replica);
  for await (const block of blocksOf(options, replica, () => !joined.complete)) yield* joined.take(block);
  yield* joined.rest();
}

async function* recordsOf(
  options: Omit<SearchOptions, 'onCut'>,
  replica: string,
): AsyncGenerator<RawRecord, void> {
  for await (const block of blocksOf(options, replica)) yield* recordsWithin(options, block);
}

function* recordsWithin(
  { query, pseudonyms = NO_PSEUDONYMS }: Omit<SearchOptions, 'onCut'>,
  { bytes }: SealedBlock,
): Generator<RawRecord, void> {
  for (const [start, end] of linesOf(bytes)) {
    const head = headOf(bytes, start);
    if (head === undefined || !isWithin(query, head)) continue;
    yield { time: head.time, line: pseudonyms.reveal(bytes.toString('utf8', start, end)) };
  }
}

/** Merges sources that are each in order of time. Reads one item of each source ahead. */
async function* inOrderOfTime<T>(
  sources: readonly AsyncGenerator<T, void>[],
  timeOf: (item: T) => string,
): AsyncGenerator<T, void> {
  try {
    const heads = await Promise.all(sources.map(async (source) => ({ source, next: await source.next() })));
    for (;;) {
      let first: (typeof heads)[number] | undefined;
      let earliest = '';
      for (const head of heads) {
        if (head.next.done === true) continue;
        const time = timeOf(head.next.value);
        if (first !== undefined && time >= earliest) continue;
        first = head;
        earliest = time;
      }
      if (first === undefined || first.next.done === true) return;
      yield first.next.value;
      first.next = await first.source.next();
    }
  } finally {
    // If the consumer stops early, the sources still have open files.
    for (const source of sources) await source.return();
  }
}
