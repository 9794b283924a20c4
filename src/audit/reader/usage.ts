import { finding } from '../findings.ts';
import { headOf, type LineHead, linesOf } from '../line.ts';
import { isPseudonym } from '../pseudonym.ts';
import { foldersIn } from '../segments/segment.ts';
import { NO_PSEUDONYMS } from './pseudonym-reader.ts';
import { CORRECTION_WITHIN_MS, isWithin, MOST_OPEN, OUTCOME_WITHIN_MS, type Query } from './query.ts';
import { blocksOf, type ReadOptions, type SealedBlock } from './sealed-blocks.ts';
import {
  copyOf,
  mayHidePseudonyms,
  rawText,
  type ScannedAccess,
  scanAccess,
  scanOutcome,
} from './usage-lines.ts';
import {
  type CountedRequest,
  DAY_MS,
  type Usage,
  UsageTable,
  type UsageTableOptions,
} from './usage-table.ts';

/** Numbers of records for which a request that was whole at its head can be corrected by an outcome. */
const CORRECTED_WITHIN = 65_536;
const DAY_LENGTH = '2026-01-01'.length;

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
  /** Requests that wait for their outcome, by the number of their access record. */
  readonly #open = new Map<number, OpenRequest>();
  /**
   * Requests that were whole at their head, each at the rest of its number: one is counted when the next takes its
   * place.
   */
  readonly #whole = new Array<OpenRequest | undefined>(CORRECTED_WITHIN);
  #hasWhole = false;
  /** The text and number of the day of the last request. */
  #day = 'none';
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
    for (const [start] of linesOf(bytes)) {
      const head = headOf(bytes, start);
      if (head === undefined) continue;
      if (isFirst) this.#begin(head, isOverlapping);
      isFirst = false;
      if (!this.#isWanted(head) || !admits(start) || this.#read(text, start, head)) continue;
      const found = finding('record-altered', { seq: head.seq });
      this.#options.onUnreadable({ ...found, replica: this.#replica, segment: '', line: 0 });
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
  #begin({ time }: LineHead, isOverlapping: boolean): void {
    this.#endOpen(MOST_OPEN);
    const { until } = this.#options.query;
    if (isOverlapping || until === undefined) return;
    const behind = Date.parse(time) - Date.parse(until);
    if (behind >= CORRECTION_WITHIN_MS) this.#endWhole();
    if (behind >= OUTCOME_WITHIN_MS) this.#endOpen(0);
  }

  #isWanted(head: LineHead): boolean {
    if (head.kind === 'outcome') return !this.complete;
    return head.kind === 'access' && isWithin(this.#options.query, head);
  }

  /** False: no gateway wrote the record. */
  #read(text: string, start: number, head: LineHead): boolean {
    return head.kind === 'outcome' ? this.#readOutcome(text, start) : this.#readAccess(text, start, head);
  }

  #readAccess(text: string, start: number, { seq, time }: LineHead): boolean {
    const scanned = scanAccess(text, start);
    if (scanned === undefined) return false;
    const access = mayHidePseudonyms(scanned) ? this.#revealed(scanned) : scanned;
    const { status, bytesIn, bytesOut } = access;
    const { identifiers, isUncounted } = this.#table.identifiersOf(access);
    const group = this.#table.groupOf(access);
    const day = this.#dayOf(time);
    const request = { seq, group, day, identifiers, isUncounted, status, bytesIn, bytesOut };
    if (!access.hasEnd) {
      this.#open.set(seq, request);
      return true;
    }
    const place = seq % CORRECTED_WITHIN;
    const before = this.#whole[place];
    if (before !== undefined) this.#table.add(before);
    this.#whole[place] = request;
    this.#hasWhole = true;
    return true;
  }

  /** With the values of pseudonyms in their place, as far as the keys are at hand. */
  #revealed(access: ScannedAccess): ScannedAccess {
    const { pseudonyms = NO_PSEUDONYMS } = this.#options;
    const { address } = access;
    const value = isPseudonym(address) ? rawText(pseudonyms.valueOf(copyOf(address))) : address;
    return { ...access, address: value, parameters: pseudonyms.reveal(access.parameters) };
  }

  #readOutcome(text: string, start: number): boolean {
    const scanned = scanOutcome(text, start);
    if (scanned === undefined) return false;
    const { access, status, bytesIn, bytesOut } = scanned;
    const open = this.#open.get(access);
    // The client did not take all of a response that was whole at its head.
    const request = open ?? this.#whole[access % CORRECTED_WITHIN];
    if (request?.seq !== access) return true;
    Object.assign(request, { status, bytesIn, bytesOut });
    if (open === undefined) return true;
    this.#open.delete(access);
    this.#table.add(open);
    return true;
  }

  #dayOf(time: string): number {
    if (!time.startsWith(this.#day)) {
      this.#day = time.slice(0, DAY_LENGTH);
      this.#dayNumber = Math.floor(Date.parse(this.#day) / DAY_MS) || 0;
    }
    return this.#dayNumber;
  }
}
