import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { messageOf } from '../../base/error-code.ts';
import type { AuditKeys } from '../keys.ts';
import { isSelected, processOf } from '../replica-name.ts';
import { formatHead, GENESIS, type Head } from '../seal.ts';
import {
  isBegunAnew,
  isStart,
  type Loss,
  parseLoss,
  parseRetirement,
  parseSetAside,
  parseWorkerHeads,
  type RetiredEnd,
  type Retirement,
  type SetAside,
} from '../segments/admin-records.ts';
import { type ChainState, ChainWalk, type IntegrityError, walkFile } from '../segments/chain-walk.ts';
import { digestOf } from '../segments/recovery.ts';
import { foldersIn, isSetAside, isStray, type Segment, segmentsIn } from '../segments/segment.ts';

/** An integrity error and its place. */
export interface Alteration extends IntegrityError {
  /** Name of the folder: a replica, or a worker of it. */
  readonly replica: string;
  /** Name of the file; empty: the error is about the replica's log as a whole. */
  readonly segment: string;
  /** From 1; 0: the error is about the file as a whole. */
  readonly line: number;
}

export interface Verified {
  readonly alterations: readonly Alteration[];
  /** Findings that are no integrity errors. */
  readonly notes: readonly string[];
  /** How many replicas there are, and how many logs of workers they have together. */
  readonly replicas: number;
  readonly workers: number;
  readonly segments: number;
  readonly records: number;
  readonly seals: number;
  /** The ends of the chains, to be given as `heads` next time. */
  readonly heads: readonly Head[];
}

/** The findings about the log of one process. */
interface Part extends Omit<Verified, 'replicas' | 'workers'> {
  /** The ends of the logs of workers that it has under its own seals. */
  readonly covered: readonly ExpectedHead[];
}

const GIVEN = '--head';

/** The end that a log had once. */
interface ExpectedHead extends Head {
  /** The source of this statement. */
  readonly source: string;
  /** True: the newest segments may be missing, as in a copy, which has closed segments only. */
  readonly mayBeAhead: boolean;
}

export interface VerifyOptions {
  readonly directory: string;
  /** A replica with its workers, or one worker; undefined: all replicas. */
  readonly replica?: string | undefined;
  /** Every key that sealed a part of the log. */
  readonly keys: readonly AuditKeys[];
  /** Ends of chains that were kept elsewhere: a log that ends before one of them was cut. */
  readonly heads: readonly Head[];
  /** Losses that were looked into, by the position that the stream had: they are notes. */
  readonly knownLosses?: readonly Head[];
  /** Called for each block that was read: its bytes, uncompressed, and how many bytes of the file it took. */
  readonly onBytes: (count: number, stored: number) => void;
}

/**
 * Follows the chain of every process of every replica from end to end. Memory use does not depend on the size of the log. A segment that
 * cannot be read is an alteration.
 * @throws Error if a directory cannot be read
 */
export async function verify(options: VerifyOptions): Promise<Verified> {
  const { directory, replica: selected } = options;
  const folders = await foldersIn(directory, selected);
  const heads = options.heads.map((head): ExpectedHead => ({ ...head, source: GIVEN, mayBeAhead: false }));
  const parts: Part[] = [];
  // The log of a primary comes before those of its workers.
  for (const folder of folders) {
    const part = await new LogCheck(options, folder, heads).run();
    heads.push(...part.covered);
    parts.push(part);
  }
  const absent = await absentLogs(options, folders, heads);
  const sum = (of: (part: Part) => number): number => parts.reduce((total, part) => total + of(part), 0);
  const processes = folders.map(processOf);
  return {
    alterations: [...parts.flatMap(({ alterations }) => alterations), ...absent],
    notes: parts.flatMap(({ notes }) => notes),
    replicas: new Set(processes.map(({ replica }) => replica)).size,
    workers: processes.filter(({ worker }) => worker > 0).length,
    segments: sum(({ segments }) => segments),
    records: sum(({ records }) => records),
    seals: sum(({ seals }) => seals),
    heads: parts.flatMap(({ heads: ends }) => ends),
  };
}

/** The logs that should be there and are not: heads name them, or there are logs of workers without their primary's. */
async function absentLogs(
  { directory, replica: selected }: VerifyOptions,
  folders: readonly string[],
  heads: readonly ExpectedHead[],
): Promise<Alteration[]> {
  const named = heads.filter(({ replica, mayBeAhead }) => isSelected(selected, replica) && !mayBeAhead);
  const primaries = folders.map((folder) => processOf(folder).replica);
  const there = new Set(await foldersIn(directory));
  const wanted = new Set([...named.map(({ replica }) => replica), ...primaries]);
  const absent = [...wanted].filter((replica) => !there.has(replica));
  return absent.map((replica) => {
    const which = processOf(replica).worker > 0 ? 'worker' : 'replica';
    const message = primaries.includes(replica)
      ? 'the log of its primary process is missing, and there are logs of its workers'
      : `the whole log of this ${which} is missing`;
    return { replica, segment: '', line: 0, message };
  });
}

/** Checks the log of one process. */
class LogCheck {
  readonly #options: VerifyOptions;
  readonly #replica: string;
  readonly #alterations: Alteration[] = [];
  readonly #notes: string[] = [];
  readonly #heads: readonly ExpectedHead[];
  /** Numbers of the records that the heads name. */
  readonly #named: ReadonlySet<number>;
  readonly #seen = new Set<string>();
  /** Ends of retired segments, from records under a seal: the log may begin after any of them. */
  readonly #starts: RetiredEnd[] = [{ last: 0, hmac: GENESIS }];
  /** From records under a seal, by the name of the file. */
  readonly #aside = new Map<string, SetAside>();
  /** The newest head of each worker that runs, and the last one of each that has ended. */
  #running = new Map<string, Head>();
  readonly #ended: Head[] = [];
  #state: ChainState | undefined;
  #stopped = false;
  #end: Head | undefined;
  #start: ChainState | undefined;
  #records = 0;
  #seals = 0;

  constructor(options: VerifyOptions, replica: string, heads: readonly ExpectedHead[]) {
    this.#options = options;
    this.#replica = replica;
    this.#heads = heads.filter((head) => head.replica === replica);
    this.#named = new Set(this.#heads.map(({ seq }) => seq));
  }

  async run(): Promise<Part> {
    const folder = join(this.#options.directory, this.#replica);
    const segments = await segmentsIn(folder);
    for (const segment of segments) await this.#check(folder, segment, segment === segments.at(-1));
    const startKnown = this.#checkStart(segments[0]);
    this.#checkHeads(startKnown);
    await this.#checkFiles(folder, segments);
    return {
      alterations: this.#alterations,
      notes: this.#notes,
      segments: segments.length,
      records: this.#records,
      seals: this.#seals,
      heads: this.#end === undefined ? [] : [this.#end],
      covered: [...this.#ended, ...this.#running.values()].map((head) => ({
        ...head,
        source: `the log of ${this.#replica}`,
        // The newest segment is compressed nowhere else.
        mayBeAhead: segments.at(-1)?.compressed === true,
      })),
    };
  }

  async #check(folder: string, segment: Segment, newest: boolean): Promise<void> {
    const { name, first } = segment;
    const { keys, onBytes } = this.#options;
    const walk = new ChainWalk({
      keys,
      replica: this.#replica,
      first,
      before: this.#state,
      onError: ({ line, message }) => this.#alter(name, line, message),
      onSeal: ({ last, hmac }) => {
        this.#end = { replica: this.#replica, seq: last, hmac };
        if (this.#named.has(last)) this.#seen.add(`${last}:${hmac}`);
      },
      onAdmin: (line, at) => this.#readAdmin(line, name, at),
    });
    let torn = 0;
    try {
      torn = await walkFile(walk, join(folder, name), onBytes);
    } catch (error) {
      const reason = messageOf(error);
      this.#alter(name, walk.lines + 1, `cannot be read from here on: ${reason}`);
    }
    this.#checkEnd(name, walk, torn, newest);
    this.#records += walk.records;
    this.#seals += walk.seals;
    if (walk.header !== undefined && walk.seals > 0) {
      const { previous, first: nextSeq, retired } = walk.header;
      this.#start ??= { previous, nextSeq };
      if (retired !== undefined) this.#starts.push(retired);
    }
    this.#state = walk.state;
    if (walk.seals > 0) this.#stopped = walk.stopped;
  }

  /** The newest segment may end anywhere while the gateway runs, or if it was killed, but not if it stopped. */
  #checkEnd(name: string, walk: ChainWalk, torn: number, newest: boolean): void {
    const { unsealed, unsealedLine } = walk;
    const stopped = walk.seals > 0 ? walk.stopped : this.#stopped;
    if (unsealed > 0 && stopped) {
      this.#alter(
        name,
        unsealedLine,
        `and what follows (${unsealed} records) were added after the process stopped`,
      );
    } else if (newest && (unsealed > 0 || torn > 0)) {
      this.#notes.push(
        `${this.#replica}/${name}: ends with ${unsealed} records under no seal and ${torn} bytes of a line: the gateway is writing, or was killed; they count for nothing`,
      );
    } else if (unsealed > 0) {
      this.#alter(name, unsealedLine, `and what follows (${unsealed} records) have no seal`);
    }
    if (!newest && torn > 0) this.#alter(name, walk.lines + 1, 'ends in the middle of a line');
    if (!newest && walk.seals === 0 && walk.keyKnown) this.#alter(name, 1, 'and what follows have no seal');
  }

  #readAdmin(line: string, segment: string, at: number): void {
    const retirement = parseRetirement(line);
    if (retirement !== undefined) this.#readRetirement(retirement, segment, at);
    this.#readWorkers(line);
    if (isBegunAnew(line)) {
      this.#alter(segment, at, 'tells that the log before it was missing when the primary process started');
    }
    const loss = parseLoss(line);
    if (loss !== undefined) this.#readLoss(loss, segment, at);
    const aside = parseSetAside(line);
    if (aside === undefined) return;
    this.#aside.set(aside.file, aside);
    if (aside.afterStop) {
      const place = `line ${aside.line} of ${aside.segment} and what followed`;
      this.#alter(
        segment,
        at,
        `tells that ${place} were added after the process stopped; now in ${aside.file}`,
      );
    }
  }

  /** The end of a worker's chain implies all before it; but the next process continues what it finds. */
  #readWorkers(line: string): void {
    const found = parseWorkerHeads(line);
    for (const head of found?.heads ?? []) {
      this.#running.delete(head.replica);
      if (found?.ended === true) this.#ended.push(head);
      else this.#running.set(head.replica, head);
    }
    if (!isStart(line)) return;
    this.#ended.push(...this.#running.values());
    this.#running = new Map();
  }

  #readLoss(loss: Loss, segment: string, at: number): void {
    const position = formatHead({ replica: this.#replica, seq: loss.last, hmac: loss.hmac });
    const message = lossMessage(loss);
    if (this.#isKnownLoss(position))
      this.#notes.push(`${this.#replica}/${segment}:${at}: ${message}; this loss is known`);
    else this.#alter(segment, at, `${message} (--known-loss ${position} once the cause is known)`);
  }

  #readRetirement(retirement: Retirement, segment: string, at: number): void {
    const { last, hmac, altered, unchecked, missingFrom, missingTo } = retirement;
    this.#starts.push({ last, hmac });
    if (altered !== undefined) {
      this.#alter(
        segment,
        at,
        `tells that ${retirement.segment} was altered before it was retired: ${altered}`,
      );
    }
    if (missingTo !== undefined) {
      this.#alter(
        segment,
        at,
        `tells that records ${missingFrom ?? '?'} to ${missingTo} had gone without having been retired`,
      );
    }
    if (unchecked !== undefined) {
      this.#notes.push(
        `${this.#replica}/${segment}:${at}: ${retirement.segment}, sealed with key ${unchecked}, was retired unchecked`,
      );
    }
  }

  /** True if every record before the oldest one was retired, as a seal says. */
  #checkStart(first: Segment | undefined): boolean {
    if (first === undefined || this.#start === undefined) return true;
    const { previous, nextSeq } = this.#start;
    if (this.#starts.some(({ last, hmac }) => last === nextSeq - 1 && hmac === previous)) return true;
    this.#alter(
      first.name,
      1,
      `is not the first: the segments before it, up to record ${nextSeq - 1}, are missing, and no seal says that they were retired`,
    );
    return false;
  }

  #checkHeads(startKnown: boolean): void {
    for (const head of this.#heads) {
      if (this.#seen.has(`${head.seq}:${head.hmac}`)) continue;
      const retired = head.seq < (this.#start?.nextSeq ?? 1);
      if (retired && startKnown) {
        if (head.source !== GIVEN) continue;
        this.#notes.push(`${this.#replica}: record ${head.seq} of --head was removed for its age`);
      } else if (head.source === GIVEN) this.#alter('', 0, this.#headMessage(head, retired));
      else this.#missCovered(head, this.#headMessage(head, retired));
    }
  }

  #missCovered(head: ExpectedHead, message: string): void {
    const name = formatHead(head);
    if (head.mayBeAhead && head.seq >= (this.#end?.seq ?? 0)) {
      this.#notes.push(`${this.#replica}: ends before record ${head.seq}, which ${head.source} names`);
    } else if (this.#isKnownLoss(name)) {
      this.#notes.push(`${this.#replica}: ${message}; this loss is known`);
    } else this.#alter('', 0, `${message} (--known-loss ${name} once the cause is known)`);
  }

  #isKnownLoss(head: string): boolean {
    return this.#options.knownLosses?.some((each) => formatHead(each) === head) ?? false;
  }

  #headMessage({ seq, source }: ExpectedHead, missing: boolean): string {
    const end = this.#end?.seq ?? 0;
    if (missing) return `record ${seq} of ${source} is missing, and no seal says that it was retired`;
    if (seq === end) return `the end is cut off after record ${seq}, or was written anew`;
    return seq > end
      ? `the end is cut off: record ${seq} was there, as ${source} says, and the log ends with ${end}`
      : `record ${seq} is sealed otherwise than ${source} says: the log was written anew`;
  }

  async #checkFiles(folder: string, segments: readonly Segment[]): Promise<void> {
    const names = await readdir(folder);
    for (const name of names) {
      if (isSetAside(name)) await this.#checkAside(folder, name);
      else if (isStray(name)) {
        this.#alter(name, 0, 'is named like a segment, and not as the gateway names one');
      }
    }
    const [oldest] = segments;
    for (const { file, segment, sha256 } of this.#aside.values()) {
      const kept = oldest !== undefined && segment >= oldest.name;
      if (kept && sha256 !== '' && !names.includes(file)) {
        this.#alter(file, 0, 'is missing: it was set aside at a start, as a seal says');
      }
    }
  }

  async #checkAside(folder: string, name: string): Promise<void> {
    const aside = this.#aside.get(name);
    const bytes = aside === undefined ? '' : `${aside.bytes} bytes in ${aside.lines} lines, `;
    const from = aside === undefined ? '' : ` from line ${aside.line} of ${aside.segment} on`;
    this.#notes.push(
      `${this.#replica}/${name}: ${bytes}set aside at a start${from}; it is no part of the log`,
    );
    if (aside === undefined || aside.sha256 === '') return;
    const same = await digestOf(join(folder, name)).then(
      (digest) => digest === aside.sha256,
      () => false,
    );
    if (!same) this.#alter(name, 0, 'was changed since it was set aside');
  }

  #alter(segment: string, line: number, message: string): void {
    this.#alterations.push({ replica: this.#replica, segment, line, message });
  }
}

function lossMessage({ last, end }: Loss): string {
  const lost = last > end ? `records ${end + 1} to ${last}` : `record ${last}, or some before it,`;
  return `tells that ${lost} had been lost before the process started: the stream in Redis had them`;
}
