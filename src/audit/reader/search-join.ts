import { headOf, type LineHead, NEWLINE } from '../line.ts';
import { Needles } from './needles.ts';
import {
  type AccessLine,
  fits,
  isWithin,
  mayHold,
  needlesOf,
  type OutcomeLine,
  type Query,
} from './query.ts';
import type { SealedBlock } from './sealed-blocks.ts';

/** How long after its answer began it is waited for what became of it, in the log's own time. */
const OUTCOME_WITHIN_MS = 3_600_000;
/** Requests that wait for it; beyond that the oldest is given without. */
const MOST_OPEN = 10_000;
const ACCESS_START = '"access":';
const CUT = Buffer.from('"cut":true');

/** A request that fits, and what became of it; undefined: the log does not say. */
export interface Found {
  readonly access: AccessLine;
  readonly outcome: OutcomeLine | undefined;
}

export interface MatchEvents {
  readonly onCut: () => void;
  readonly onUnreadable: (message: string) => void;
}

interface Open {
  readonly access: AccessLine;
  readonly giveUpAt: string;
  outcome: OutcomeLine | undefined;
  settled: boolean;
}

/** Finds the requests that fit in one replica's log, block by block, and joins each with its outcome. */
export class AccessMatches {
  readonly #query: Query;
  readonly #events: MatchEvents;
  readonly #needles: Needles;
  /** Those that a line must have all of, or all but the identifier. */
  readonly #all: readonly Buffer[];
  readonly #allButId: readonly Buffer[];
  /** Records that fit and stand under no seal. */
  #unsealed = 0;
  /** By number, in their order. */
  readonly #open = new Map<number, Open>();

  constructor(query: Query, events: MatchEvents) {
    this.#query = query;
    this.#events = events;
    this.#all = needlesOf(query);
    const { id, ...rest } = query;
    this.#allButId = needlesOf(rest);
    this.#needles = new Needles([...this.#all.slice(0, 1), ...(id === undefined ? [] : [CUT])]);
  }

  /** Whether nothing found so far waits for what became of it. */
  get complete(): boolean {
    return this.#open.size === 0;
  }

  /** How many records were left out since the last time, since no seal covers them as they are. */
  takeUnsealed(): number {
    const count = this.#unsealed;
    this.#unsealed = 0;
    return count;
  }

  /** The next whole lines; gives what is settled with them. */
  *take({ bytes: block, covers }: SealedBlock): Generator<Found, void> {
    for (let start = 0; start < block.length; ) {
      if (this.complete) start = this.#needles.lineFrom(block, start);
      if (start === -1) return;
      const end = block.indexOf(NEWLINE, start);
      const head = headOf(block, start);
      const at = start;
      const sealed = (): boolean => covers(at);
      if (head?.kind === 'access') this.#readAccess(head, block.subarray(start, end), sealed);
      else if (head?.kind === 'outcome' && !this.complete)
        this.#readOutcome(block.subarray(start, end), sealed);
      if (head !== undefined && !this.complete && covers(start)) yield* this.#settled(head.time);
      start = end + 1;
    }
  }

  /** What is left when there are no more lines. */
  *rest(): Generator<Found, void> {
    for (const { access, outcome } of this.#open.values()) {
      if (this.#hasStatus(access, outcome)) yield { access, outcome };
    }
    this.#open.clear();
  }

  #readAccess(head: LineHead, line: Buffer, sealed: () => boolean): void {
    if (!isWithin(this.#query, head)) return;
    const whole = this.#all.every((needle) => line.includes(needle));
    if (!whole && !(this.#query.id !== undefined && this.#isCut(line))) return;
    const access = this.#parse<AccessLine>(head.seq, line);
    if (access === undefined) return;
    const begun = Date.parse(head.time);
    if (Number.isNaN(begun) || !(access.parameters instanceof Object)) {
      this.#changed(head.seq);
      return;
    }
    const found = fits(this.#query, access);
    if (found && sealed()) this.#add(head.seq, begun, access);
    else if (found) this.#unsealed += 1;
    else if (this.#query.id !== undefined && mayHold(this.#query, access)) this.#events.onCut();
  }

  #isCut(line: Buffer): boolean {
    return line.includes(CUT) && this.#allButId.every((needle) => line.includes(needle));
  }

  #add(seq: number, begun: number, access: AccessLine): void {
    const giveUpAt = new Date(begun + OUTCOME_WITHIN_MS).toISOString();
    this.#open.set(seq, { access, giveUpAt, outcome: undefined, settled: false });
  }

  #readOutcome(line: Buffer, sealed: () => boolean): void {
    const at = line.indexOf(ACCESS_START) + ACCESS_START.length;
    const seq = Number.parseInt(line.toString('latin1', at, at + 16), 10);
    const open = this.#open.get(seq);
    if (open === undefined || !sealed()) return;
    open.outcome = this.#parse<OutcomeLine>(seq, line);
    open.settled = true;
    if (!this.#hasStatus(open.access, open.outcome)) this.#open.delete(seq);
  }

  /** Those at the front that have their outcome, or will not get one. */
  *#settled(time: string): Generator<Found, void> {
    for (const [seq, { access, outcome, settled, giveUpAt }] of this.#open) {
      if (!settled && time < giveUpAt && this.#open.size <= MOST_OPEN) return;
      this.#open.delete(seq);
      if (this.#hasStatus(access, outcome)) yield { access, outcome };
    }
  }

  #hasStatus(access: AccessLine, outcome: OutcomeLine | undefined): boolean {
    const { status } = this.#query;
    if (status === undefined) return true;
    const ended = outcome?.status ?? access.status;
    return ended >= status.from && ended <= status.to;
  }

  #parse<T>(seq: number, line: Buffer): T | undefined {
    try {
      return JSON.parse(line.toString('utf8')) as T;
    } catch {
      this.#changed(seq);
      return undefined;
    }
  }

  #changed(seq: number): void {
    this.#events.onUnreadable(`record ${seq} was changed: run audit verify`);
  }
}
