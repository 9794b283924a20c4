import { finding } from '../findings.ts';
import { isPseudonym } from '../pseudonym.ts';
import { foldersIn } from '../segments/segment.ts';
import { NO_PSEUDONYMS } from './pseudonym-reader.ts';
import { CORRECTION_WITHIN_MS, isWithin, MOST_OPEN, OUTCOME_WITHIN_MS, type Query } from './query.ts';
import { blocksOf, type ReadOptions, type SealedBlock } from './sealed-blocks.ts';
import { copyOf, RecordScan, rawText, UnreadableLine } from './usage-lines.ts';
import {
  type CountedRequest,
  DAY_MS,
  type Usage,
  UsageTable,
  type UsageTableOptions,
} from './usage-table.ts';

/** Numbers of records for which a request that was whole at its head can be corrected by an outcome. */
const CORRECTED_WITHIN = 65_536;
const RECORD = '{"seq":';
/** Second letters of kinds. */
const ACCESS = 'c';
const OUTCOME = 'u';

interface UsageOptions extends ReadOptions, UsageTableOptions {
  /** Time range and replica. */
  readonly query: Pick<Query, 'since' | 'until' | 'replica'>;
}

/**
 * Counts the requests of the log by group. Only records under a seal count. Memory use depends on the number of groups
 * and days, not on the size of the log.
 * @throws Error if a directory cannot be read
 */
export async function countUsage(options: UsageOptions): Promise<Usage> {
  const table = new UsageTable(options);
  for (const replica of await foldersIn(options.directory, options.query.replica)) {
    const reader = new UsageReader(options, replica, table);
    for await (const block of blocksOf(options, replica, () => !reader.complete)) reader.take(block);
    reader.end();
  }
  return table.usage();
}

/** A request that is not counted yet, with its end as far as it is known. */
interface OpenRequest extends CountedRequest {
  readonly seq: number;
  status: number;
  bytesIn: number;
  bytesOut: number;
}

/** Reads one process's log, block by block, and joins each request with its outcome. */
class UsageReader {
  readonly #options: UsageOptions;
  readonly #replica: string;
  readonly #table: UsageTable;
  readonly #scan = new RecordScan();
  /** Requests that wait for their outcome, by the number of their access record. */
  readonly #open = new Map<number, OpenRequest>();
  /** Requests that were whole at their head, each at the rest of its number: one is counted when the next takes its place. */
  readonly #whole = new Array<OpenRequest | undefined>(CORRECTED_WITHIN);
  #hasWhole = false;
  #day = '';
  #dayNumber = 0;

  constructor(options: UsageOptions, replica: string, table: UsageTable) {
    this.#options = options;
    this.#replica = replica;
    this.#table = table;
  }

  /** True if all requests are counted. */
  get complete(): boolean {
    return this.#open.size === 0 && !this.#hasWhole;
  }

  take({ bytes, isOverlapping, admits }: SealedBlock): void {
    const text = bytes.toString('latin1');
    let isFirst = true;
    for (let start = 0; start < text.length; ) {
      const end = text.indexOf('\n', start);
      if (text.startsWith(RECORD, start)) {
        this.#scan.readHead(text, start);
        if (isFirst) this.#begin(isOverlapping);
        isFirst = false;
        this.#read(text, start, end, admits);
      }
      start = end + 1;
    }
  }

  /** Counts the requests that are left at the end of the log. */
  end(): void {
    this.#endWhole();
    this.#endOpen(0);
  }

  #endWhole(): void {
    for (const request of this.#whole) if (request !== undefined) this.#table.add(request);
    this.#whole.fill(undefined);
    this.#hasWhole = false;
  }

  /** Counts the oldest requests without their outcome; `kept`: how many go on waiting. */
  #endOpen(kept: number): void {
    for (const [seq, request] of this.#open) {
      if (this.#open.size <= kept) return;
      this.#open.delete(seq);
      this.#table.add(request);
    }
  }

  /** Gives up outcomes: those of too many requests, and behind the time range those that would have come by now. */
  #begin(isOverlapping: boolean): void {
    this.#endOpen(MOST_OPEN);
    const { until } = this.#options.query;
    if (isOverlapping || until === undefined) return;
    const behind = Date.parse(this.#scan.time) - Date.parse(until);
    if (behind >= CORRECTION_WITHIN_MS) this.#endWhole();
    if (behind >= OUTCOME_WITHIN_MS) this.#endOpen(0);
  }

  #read(text: string, start: number, end: number, admits: (at: number) => boolean): void {
    const scan = this.#scan;
    const isWanted =
      scan.kind === OUTCOME ? !this.complete : scan.kind === ACCESS && isWithin(this.#options.query, scan);
    if (!isWanted || !admits(start)) return;
    try {
      if (scan.kind === OUTCOME) this.#readOutcome(text, start, end);
      else this.#readAccess(text, start, end);
    } catch (error) {
      if (!(error instanceof UnreadableLine)) throw error;
      const found = finding('record-altered', { seq: scan.seq });
      this.#options.onUnreadable({ ...found, replica: this.#replica, segment: '', line: 0 });
    }
  }

  #readAccess(text: string, start: number, end: number): void {
    const scan = this.#scan;
    scan.readAccess(text, start, end);
    if (scan.hasPseudonyms) this.#reveal(scan);
    const { seq, status, bytesIn, bytesOut } = scan;
    const { identifiers, isUncounted } = this.#table.identifiersOf(scan);
    const group = this.#table.groupOf(scan);
    const day = this.#dayOf(scan);
    const request = { seq, group, day, identifiers, isUncounted, status, bytesIn, bytesOut };
    if (bytesIn === -1) {
      this.#open.set(seq, { ...request, bytesIn: 0, bytesOut: 0 });
      return;
    }
    const place = seq % CORRECTED_WITHIN;
    const before = this.#whole[place];
    if (before !== undefined) this.#table.add(before);
    this.#whole[place] = request;
    this.#hasWhole = true;
  }

  /** Puts the values of pseudonyms in their place, as far as the keys are at hand. */
  #reveal(scan: RecordScan): void {
    const { pseudonyms = NO_PSEUDONYMS } = this.#options;
    if (isPseudonym(scan.address)) scan.address = rawText(pseudonyms.valueOf(copyOf(scan.address)));
    scan.parameters = pseudonyms.reveal(scan.parameters);
  }

  #readOutcome(text: string, start: number, end: number): void {
    const scan = this.#scan;
    scan.readOutcome(text, start, end);
    const { access, status, bytesIn, bytesOut } = scan;
    const open = this.#open.get(access);
    if (open !== undefined) {
      this.#open.delete(access);
      this.#table.add(Object.assign(open, { status, bytesIn, bytesOut }));
      return;
    }
    // The client did not take all of a response that was whole at its head.
    const whole = this.#whole[access % CORRECTED_WITHIN];
    if (whole?.seq === access) Object.assign(whole, { status, bytesIn, bytesOut });
  }

  #dayOf(scan: RecordScan): number {
    const { day } = scan;
    if (day === this.#day) return this.#dayNumber;
    this.#day = copyOf(day);
    this.#dayNumber = Math.floor(Date.parse(day) / DAY_MS) || 0;
    return this.#dayNumber;
  }
}
