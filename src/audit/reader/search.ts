import { finding } from '../findings.ts';
import { headOf, type LineHead, linesOf, NEWLINE } from '../line.ts';
import { isPseudonym } from '../pseudonym.ts';
import { foldersIn } from '../segments/segment.ts';
import { ByteMatcher, hasEach, Pattern } from './byte-matcher.ts';
import { NO_PSEUDONYMS, type PseudonymReader } from './pseudonym-reader.ts';
import {
  type AccessRecord,
  asksEvents,
  asksRequests,
  CORRECTION_WITHIN_MS,
  type Found,
  hasEnded,
  hasText,
  idPatterns,
  isWithin,
  MOST_OPEN,
  matches,
  matchesEvent,
  mayEnd,
  OUTCOME_AFTER_START_MS,
  OUTCOME_WITHIN_MS,
  patternsOf,
  type Query,
  requestOf,
  timeOf,
} from './query.ts';
import type { EventLine, OutcomeLine } from './results.ts';
import { blocksOf, type SealedBlock } from './sealed-blocks.ts';
import type { ReadOptions } from './searched-segments.ts';
import type { Undecided } from './undecided.ts';

const ACCESS_START = '"access":';
const OUTCOME = new Pattern('"kind":"outcome"');
const LEFT_OUT = new Pattern('"event":"refusals-left-out"');
const RECORD_START = Buffer.from('\n{"seq":');

export interface SearchOptions extends ReadOptions {
  readonly query: Query;
  /** Names of `audit.parameters`: an older record may have one by its name only. Left out: there are none. */
  readonly parameters?: readonly string[];
  /** Called for requests that are not among the results, and may match: the log does not say what counts. */
  readonly onUndecided?: (reason: Undecided, requests: number) => void;
  /** True: no result waits for its turn, so the end of a long response is found among any number of others. */
  readonly inAnyOrder?: boolean;
}

/**
 * Returns the matching records under a seal from the logs of all processes, in order of time unless any order will do.
 * Memory use does not depend on the size of the log.
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
export async function* allRecords(options: SearchOptions): AsyncGenerator<RawRecord, void> {
  const folders = await foldersIn(options.directory, options.query.replica);
  const records = folders.map((name) => recordsOf(options, name));
  yield* inOrderOfTime(records, ({ time }) => time);
}

async function* searchLog(options: SearchOptions, replica: string): AsyncGenerator<Found, void> {
  const joined = new SearchJoin(options, replica);
  for await (const block of blocksOf(options, replica, () => !joined.complete)) yield* joined.take(block);
  yield* joined.rest();
}

async function* recordsOf(options: SearchOptions, replica: string): AsyncGenerator<RawRecord, void> {
  const { query, pseudonyms = NO_PSEUDONYMS } = options;
  for await (const { bytes } of blocksOf(options, replica)) {
    for (const [start, end] of linesOf(bytes)) {
      const head = headOf(bytes, start);
      if (head === undefined || !isWithin(query, head)) continue;
      yield { time: head.time, line: pseudonyms.reveal(bytes.toString('utf8', start, end)) };
    }
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

type JoinOptions = Omit<SearchOptions, Exclude<keyof ReadOptions, 'onUnreadable' | 'pseudonyms'>>;

interface Open {
  found: Found;
  /** In Unix milliseconds, by the log's own time. */
  giveUpAt: number;
  /** The outcome was read, or there is none to come. */
  settled: boolean;
}

/** Finds what matches in one replica's log, block by block, and joins each request with its outcome. */
export class SearchJoin {
  readonly #options: JoinOptions;
  readonly #replica: string;
  readonly #query: Query;
  readonly #pseudonyms: PseudonymReader;
  readonly #events: boolean;
  readonly #requests: boolean;
  readonly #refusals: boolean;
  readonly #matcher: ByteMatcher;
  /** The same with what ends requests, while one is open; and that only. */
  readonly #joiningMatcher: ByteMatcher;
  readonly #endMatcher: ByteMatcher;
  /** In the records of the gateway itself when a process begins and when it ends. */
  readonly #start: Pattern;
  readonly #stop: Pattern;
  /** Groups of patterns, one of each being in every line that matches or may. */
  readonly #all: readonly Pattern[][];
  /** Texts of which one is in such a line once it is revealed; undefined: any line. */
  readonly #idTexts: readonly string[] | undefined;
  readonly #parameters: readonly string[];
  /** Requests that wait for their outcome, and what follows them, by record number in ascending order. */
  readonly #open = new Map<number, Open>();

  constructor(options: JoinOptions, replica: string) {
    const { pseudonyms = NO_PSEUDONYMS } = options;
    // Of a pseudonym whose key is known, records have the value once they are read.
    const address = options.query.address?.map((form) => pseudonyms.valueOf(form));
    const query = address === undefined ? options.query : { ...options.query, address };
    this.#options = options;
    this.#replica = replica;
    this.#query = query;
    this.#pseudonyms = pseudonyms;
    this.#events = asksEvents(query);
    this.#requests = asksRequests(query);
    this.#refusals = this.#requests && asksRefusals(query);
    this.#parameters = options.parameters ?? [];
    this.#all = patternsOf(query, this.#parameters, pseudonyms);
    this.#idTexts = query.id === undefined ? undefined : idPatterns(query.id, this.#parameters);
    const [selective = []] = this.#all;
    const patterns = this.#refusals && selective.length > 0 ? [...selective, LEFT_OUT] : selective;
    this.#matcher = new ByteMatcher(patterns);
    const event = `"kind":"admin","replica":${JSON.stringify(replica)},"event":`;
    this.#start = new Pattern(`${event}"start"`);
    this.#stop = new Pattern(`${event}"stop"`);
    const ends = [OUTCOME, this.#start, this.#stop];
    this.#joiningMatcher = new ByteMatcher(patterns.length === 0 ? [] : [...patterns, ...ends]);
    this.#endMatcher = new ByteMatcher(ends);
  }

  /** True if no request waits for its outcome. */
  get complete(): boolean {
    return this.#open.size === 0;
  }

  /**
   * Reads the next block; yields what is complete with it. `outcomesOnly`: nothing new is taken from this block.
   */
  *take({ bytes: block }: SealedBlock, outcomesOnly = false): Generator<Found, void> {
    for (let start = 0; start < block.length; ) {
      start = this.#nextLine(block, start, outcomesOnly);
      if (start === -1) break;
      const end = block.indexOf(NEWLINE, start);
      const head = headOf(block, start);
      if (head !== undefined) this.#readRecord(head, block.subarray(start, end), outcomesOnly);
      start = end + 1;
    }
    if (this.complete) return;
    // Once for a block: thousands may wait.
    const head = headOf(block, lastRecord(block));
    if (head !== undefined) yield* this.#settled(Date.parse(head.time));
  }

  /** The index of the next line to read; -1: there is none. */
  #nextLine(block: Buffer, start: number, outcomesOnly: boolean): number {
    if (outcomesOnly) return this.complete ? -1 : this.#endMatcher.lineFrom(block, start);
    return (this.complete ? this.#matcher : this.#joiningMatcher).lineFrom(block, start);
  }

  /** The requests that are left at the end of the log. */
  *rest(): Generator<Found, void> {
    for (const { found } of this.#open.values()) if (this.#isWanted(found)) yield found;
    this.#open.clear();
  }

  #readRecord(head: LineHead, line: Buffer, outcomesOnly: boolean): void {
    if (head.kind === 'admin' && !this.complete) this.#endRequests(head, line);
    if (head.kind === 'outcome') {
      if (!this.complete) this.#readOutcome(line);
    } else if (outcomesOnly || !isWithin(this.#query, head)) return;
    else if (head.kind === 'access') this.#readAccess(head, line);
    else this.#readEvent(head, line);
  }

  /** No outcome follows the `stop` of its process, or a `start`, unless the request was one of the first. */
  #endRequests({ time }: LineHead, line: Buffer): void {
    const isStop = this.#stop.indexIn(line) !== -1;
    if (!isStop && this.#start.indexIn(line) === -1) return;
    const latest = isStop ? 0 : Date.parse(time) + OUTCOME_AFTER_START_MS;
    for (const open of this.#open.values()) open.giveUpAt = Math.min(open.giveUpAt, latest);
  }

  #readEvent({ seq }: LineHead, line: Buffer): void {
    const isLeftOut = this.#refusals && LEFT_OUT.indexIn(line) !== -1;
    if (!this.#events && !isLeftOut) return;
    const event = this.#parse<EventLine>(seq, this.#pseudonyms.reveal(line.toString('utf8')));
    if (event === undefined) return;
    const requests = isLeftOut ? leftOutIn(event, this.#query) : 0;
    if (requests > 0) this.#options.onUndecided?.('leftOut', requests);
    if (!this.#events || !matchesEvent(this.#query, event)) return;
    this.#open.set(seq, { found: { event }, giveUpAt: 0, settled: true });
  }

  #readAccess(head: LineHead, line: Buffer): void {
    if (!this.#requests || !hasEach(line, this.#all)) return;
    const text = this.#pseudonyms.reveal(line.toString('utf8'));
    if (this.#idTexts?.some((each) => text.includes(each)) === false) return;
    const access = this.#parse<AccessRecord>(head.seq, text);
    if (access === undefined) return;
    const begun = Date.parse(head.time);
    if (Number.isNaN(begun) || !(access.parameters instanceof Object)) {
      this.#changed(head.seq);
      return;
    }
    const verdict = matches(this.#query, access, this.#parameters);
    if (verdict === true) this.#add(head.seq, begun, access);
    else if (verdict !== false && mayEnd(this.#query, access)) this.#options.onUndecided?.(verdict, 1);
  }

  #add(seq: number, begun: number, access: AccessRecord): void {
    const found = requestOf(access);
    const withinMs = found.outcome === undefined ? OUTCOME_WITHIN_MS : CORRECTION_WITHIN_MS;
    this.#open.set(seq, { found, giveUpAt: begun + withinMs, settled: false });
  }

  #readOutcome(line: Buffer): void {
    const at = line.indexOf(ACCESS_START) + ACCESS_START.length;
    const seq = Number.parseInt(line.toString('latin1', at, at + 16), 10);
    const open = this.#open.get(seq);
    if (open === undefined || 'event' in open.found) return;
    open.found = { ...open.found, outcome: this.#parse<OutcomeLine>(seq, line.toString('utf8')) };
    open.settled = true;
    if (!this.#isWanted(open.found)) this.#open.delete(seq);
  }

  /** Called once for a request that is not wanted. */
  #isWanted(found: Found): boolean {
    if ('event' in found) return true;
    const { access, outcome } = found;
    if (!hasEnded(this.#query, access, outcome)) return false;
    const verdict = hasText(this.#query, found, this.#parameters);
    if (typeof verdict === 'string') this.#options.onUndecided?.(verdict, 1);
    return verdict === true;
  }

  /** The requests at the front that have their outcome, or will not get one; in any order, long ones are passed by. */
  *#settled(now: number): Generator<Found, void> {
    const { inAnyOrder = false } = this.#options;
    if (this.#open.size > MOST_OPEN) this.#dropUnwanted(now);
    for (const [seq, { found, settled, giveUpAt }] of this.#open) {
      // A response that was whole has an end, which is hardly ever corrected.
      const isNext = this.#open.size > MOST_OPEN && (!inAnyOrder || hasOutcome(found));
      if (settled || now >= giveUpAt || isNext) yield* this.#giveOut(seq, found);
      else if (!inAnyOrder || hasOutcome(found)) return;
    }
    for (const [seq, { found }] of this.#open) {
      if (this.#open.size <= MOST_OPEN) return;
      yield* this.#giveOut(seq, found);
    }
  }

  *#giveOut(seq: number, found: Found): Generator<Found, void> {
    this.#open.delete(seq);
    if (this.#isWanted(found)) yield found;
  }

  /** Makes room for those that wait: what is not asked for need not keep its place. */
  #dropUnwanted(now: number): void {
    for (const [seq, { found, giveUpAt }] of this.#open) {
      if (now < giveUpAt && hasOutcome(found)) return;
      if (now >= giveUpAt && !this.#isWanted(found)) this.#open.delete(seq);
    }
  }

  #parse<T>(seq: number, line: string): T | undefined {
    try {
      return JSON.parse(line) as T;
    } catch {
      this.#changed(seq);
      return undefined;
    }
  }

  #changed(seq: number): void {
    const found = finding('record-altered', { seq });
    this.#options.onUnreadable({ ...found, replica: this.#replica, segment: '', line: 0 });
  }
}

/** True if refusals without a record may match. With every request id they would, and hardly ever do. */
function asksRefusals({ requestId, status, code, outcome }: Query): boolean {
  return requestId === undefined && outcome === undefined && code !== '' && (status?.to ?? 599) >= 400;
}

/** Refusals that have no record, as this event says, and may be of the client and the address of the query. */
function leftOutIn({ client: of, address: from, count }: EventLine, { client, address }: Query): number {
  const isOfMany = of === '' && from === '';
  const isOther = client !== undefined && client !== of;
  const isElsewhere = address !== undefined && !address.includes(String(from)) && !isPseudonym(String(from));
  return isOfMany || !(isOther || isElsewhere) ? Number(count) : 0;
}

function hasOutcome(found: Found): boolean {
  return 'access' in found && found.outcome !== undefined;
}

/** The index of the last record of a block. */
function lastRecord(block: Buffer): number {
  const mark = block.lastIndexOf(RECORD_START);
  return mark === -1 ? 0 : mark + 1;
}
