import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { errorCode, messageOf } from '../../base/error-code.ts';
import { type Finding, finding, isNote, type PlacedFinding } from '../findings.ts';
import type { AuditKeys } from '../keys.ts';
import { processOf } from '../replica-name.ts';
import { formatHead, type Head } from '../seal.ts';
import type { AdminRecord, Loss, SetAside } from '../segments/admin-records.ts';
import { type ChainState, ChainWalk, type WalkedBatch, walkFile } from '../segments/chain-walk.ts';
import { digestOf } from '../segments/recovery.ts';
import { foldersIn, isSetAside, isStray, type Segment, segmentsIn } from '../segments/segment.ts';
import { adminRecords, type PlacedAdmin, TreeWalk, UnprovenRecords } from '../segments/tree-walk.ts';
import { absentLogs, type HeadCheckOptions, HeadChecks, type HeadCounts } from './head-checks.ts';
import { LogStart } from './log-start.ts';

/** How often the log of one process is read while segments of it are removed. */
const MOST_READ = 10;

export interface Verified extends HeadCounts {
  /** The integrity errors. */
  readonly alterations: readonly PlacedFinding[];
  /** Findings that are not integrity errors. */
  readonly notes: readonly PlacedFinding[];
  /** How many replicas there are, and how many logs of workers they have together. */
  readonly replicas: number;
  readonly workers: number;
  readonly segments: number;
  readonly records: number;
  readonly seals: number;
  /** Signed heads that are right, and records under them; 0 if none was to be checked. */
  readonly checkpoints: number;
  readonly provenRecords: number;
  /** The ends of the chains, to be given as `heads` next time. */
  readonly heads: readonly Head[];
}

/** The result for the log of one process. */
interface Part extends Omit<Verified, 'replicas' | 'workers' | 'alterations' | 'notes'> {
  readonly findings: readonly PlacedFinding[];
  /** True if a segment was gone when it was to be read. */
  readonly hasLostSegment: boolean;
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

export interface VerifyOptions extends HeadCheckOptions {
  /** A replica with its workers, or one worker; undefined: all replicas. */
  readonly replica?: string | undefined;
  /** Every key that sealed a part of the log; `unknown`: a seal is compared with its lines only. */
  readonly keys: readonly AuditKeys[] | 'unknown';
  /** Ends of chains that were kept elsewhere: a log that ends before one of them was cut. */
  readonly heads: readonly Head[];
  /** Losses that were looked into, by the position that the stream had: they are notes. */
  readonly knownLosses?: readonly Head[];
  /**
   * True: the directory is a copy of closed segments, of which the newest may be missing. The log cannot say so: who cuts
   * it off could compress what is left.
   */
  readonly isCopy?: boolean;
  /** Called for each block that was read: its bytes, uncompressed, and how many bytes of the file it took. */
  readonly onBytes: (count: number, stored: number) => void;
}

/**
 * Follows the chain of every process of every replica from end to end. Memory use does not depend on the size of the
 * log. A segment that cannot be read is an alteration.
 * @throws Error if a directory cannot be read
 */
export async function verify(options: VerifyOptions): Promise<Verified> {
  const { directory, replica: selected } = options;
  const folders = await foldersIn(directory, selected);
  const heads = options.heads.map((head): ExpectedHead => ({ ...head, source: GIVEN, mayBeAhead: false }));
  const parts: Part[] = [];
  // The log of a primary comes before those of its workers.
  for (const folder of folders) {
    const part = await checkLog(options, folder, heads);
    heads.push(...part.covered);
    parts.push(part);
  }
  const absent = await absentLogs(options, selected, folders, heads);
  const findings = [...parts.flatMap((part) => part.findings), ...absent];
  const sum = (of: (part: Part) => number): number => parts.reduce((total, part) => total + of(part), 0);
  const processes = folders.map(processOf);
  return {
    alterations: findings.filter((each) => !isNote(each)),
    notes: findings.filter(isNote),
    replicas: new Set(processes.map(({ replica }) => replica)).size,
    workers: processes.filter(({ worker }) => worker > 0).length,
    segments: sum(({ segments }) => segments),
    records: sum(({ records }) => records),
    seals: sum(({ seals }) => seals),
    checkpoints: sum(({ checkpoints }) => checkpoints),
    provenRecords: sum(({ provenRecords }) => provenRecords),
    cosigned: sum(({ cosigned }) => cosigned),
    cosignedRecords: sum(({ cosignedRecords }) => cosignedRecords),
    cosignedAt: Math.max(0, ...parts.map(({ cosignedAt }) => cosignedAt)),
    stamped: sum(({ stamped }) => stamped),
    stampedAt: Math.max(0, ...parts.map(({ stampedAt }) => stampedAt)),
    heads: parts.flatMap(({ heads: ends }) => ends),
  };
}

/** Checks the log of one process, again if a running gateway removed a segment for its age after the folder was read. */
async function checkLog(
  options: VerifyOptions,
  replica: string,
  heads: readonly ExpectedHead[],
): Promise<Part> {
  for (let left = MOST_READ; ; left -= 1) {
    const part = await new LogCheck(options, replica, heads).run();
    if (!part.hasLostSegment || left <= 1) return part;
  }
}

/** Checks the log of one process once. */
class LogCheck {
  readonly #options: VerifyOptions;
  readonly #replica: string;
  readonly #findings: PlacedFinding[] = [];
  readonly #heads: readonly ExpectedHead[];
  /** Numbers of the records that the heads name. */
  readonly #named: ReadonlySet<number>;
  readonly #seen = new Set<string>();
  readonly #start = new LogStart();
  /** From records under a seal, by the name of the file. */
  readonly #aside = new Map<string, SetAside>();
  /** The newest head of each worker that runs, and the last one of each that has ended. */
  readonly #running = new Map<string, Head>();
  readonly #ended: Head[] = [];
  #hasLostSegment = false;
  #state: ChainState | undefined;
  #stopped = false;
  #end: Head | undefined;
  #records = 0;
  #seals = 0;
  readonly #trees: TreeWalk | undefined;
  readonly #headChecks: HeadChecks;
  readonly #unproven = new UnprovenRecords();

  constructor(options: VerifyOptions, replica: string, heads: readonly ExpectedHead[]) {
    this.#options = options;
    this.#replica = replica;
    this.#heads = heads.filter((head) => head.replica === replica);
    this.#named = new Set(this.#heads.map(({ seq }) => seq));
    const { publicKeys } = options;
    this.#headChecks = new HeadChecks(options, replica);
    this.#trees =
      publicKeys &&
      new TreeWalk({ replica, keys: publicKeys, onTree: (tree) => this.#headChecks.compare(tree) });
  }

  async run(): Promise<Part> {
    const folder = join(this.#options.directory, this.#replica);
    const segments = await segmentsIn(folder);
    for (const segment of segments) await this.#check(folder, segment, segment === segments.at(-1));
    this.#checkSigned(segments.at(-1));
    await this.#headChecks.begin(undefined);
    const { isCopy = false } = this.#options;
    const { first, retirement, missing: last } = this.#start;
    // Not by its header, which nobody signs.
    const begun = Date.parse(retirement?.olderThan ?? '');
    for (const found of this.#headChecks.findings({ first, begun }, isCopy)) this.#add(found);
    const [oldest] = segments;
    if (last !== undefined) this.#add(finding('segment-missing', { last }), oldest?.name, 1);
    this.#checkHeads();
    await this.#checkFiles(folder, oldest);
    return {
      findings: this.#findings,
      hasLostSegment: this.#hasLostSegment,
      segments: segments.length,
      records: this.#records,
      seals: this.#seals,
      checkpoints: this.#trees?.checkpoints ?? 0,
      provenRecords: this.#trees?.records ?? 0,
      ...this.#headChecks.counts,
      heads: this.#end === undefined ? [] : [this.#end],
      covered: [...this.#ended, ...this.#running.values()].map((head) => ({
        ...head,
        source: `the log of ${this.#replica}`,
        mayBeAhead: isCopy,
      })),
    };
  }

  async #check(folder: string, segment: Segment, newest: boolean): Promise<void> {
    const { name, first } = segment;
    const { keys, onBytes } = this.#options;
    const walk = new ChainWalk({ keys, replica: this.#replica, first, before: this.#state });
    try {
      await this.#headChecks.begin(first);
      await walkFile(walk, join(folder, name), (batch) => this.#readBatch(batch, name), onBytes);
      // A crash can leave the newest file empty, and the next start removes it.
      if (!newest && walk.lines + walk.torn === 0) this.#add(finding('segment-unsealed'), name);
    } catch (error) {
      this.#hasLostSegment ||= errorCode(error) === 'ENOENT';
      this.#add(finding('segment-unreadable', { reason: messageOf(error) }), name, walk.lines + 1);
    }
    this.#checkEnd(name, walk, newest);
    this.#records += walk.records;
    this.#seals += walk.seals;
    // A header is under no signed head; the record of the same retirement is.
    this.#start.addSegment(walk, first, this.#trees === undefined);
    this.#state = walk.state;
    if (walk.seals > 0) this.#stopped = walk.stopped;
  }

  #readBatch(batch: WalkedBatch, name: string): void {
    const { seal, trust, admin, errors } = batch;
    for (const error of errors) this.#add(error, name, error.line);
    const records =
      this.#trees === undefined ? adminRecords(admin, name) : this.#readTree(this.#trees, batch, name);
    for (const { record, isLate, name: place, at } of records) {
      for (const found of this.#findingsOf(record, isLate)) this.#add(found, place, at);
    }
    if (seal === undefined || trust !== 'sealed') return;
    const { last, hmac } = seal;
    this.#end = { replica: this.#replica, seq: last, hmac };
    if (this.#named.has(last)) this.#seen.add(`${last}:${hmac}`);
  }

  /** Returns the admin records that a signed head covers now: only those are believed. */
  #readTree(trees: TreeWalk, batch: WalkedBatch, name: string): readonly PlacedAdmin[] {
    const { head, errors } = trees.take(batch);
    for (const error of errors) this.#add(error, name, error.line);
    const proven = this.#unproven.next(adminRecords(batch.admin, name), head?.line);
    if (trees.tree === undefined) this.#unproven.clear();
    return proven;
  }

  #checkSigned(newest: Segment | undefined): void {
    if (this.#trees === undefined || newest === undefined) return;
    const { checkpoints, end } = this.#trees;
    if (this.#unproven.isExceeded) this.#add(finding('admin-unsigned'));
    // A head follows the first record, which a worker may not have yet.
    if (checkpoints === 0 && this.#records > 0) this.#add(finding('checkpoint-missing'));
    else if (end !== undefined) this.#add(end, newest.name);
  }

  /** The newest segment may end anywhere while the gateway runs, or if it was killed, but not if it stopped. */
  #checkEnd(name: string, walk: ChainWalk, newest: boolean): void {
    const { unsealed, unsealedLine, torn } = walk;
    const { records, lines } = unsealed;
    const stopped = walk.seals > 0 ? walk.stopped : this.#stopped;
    if (records > 0 && stopped) this.#add(finding('appended-after-stop', { records }), name, unsealedLine);
    else if (newest && (lines > 0 || torn > 0)) {
      this.#add(finding('end-unsealed', { lines, bytes: torn }), name);
    } else if (lines > 0) this.#add(finding('lines-unsealed', { lines }), name, unsealedLine);
    if (!newest && torn > 0) this.#add(finding('line-torn', { bytes: torn }), name, walk.lines + 1);
    if (!newest && walk.seals === 0 && walk.keyKnown) this.#add(finding('segment-unsealed'), name, 1);
  }

  /** A late record excuses nothing: what it says is missing, or where a log ends, is only demanded. */
  *#findingsOf(record: AdminRecord, isLate: boolean): Generator<Finding> {
    switch (record.event) {
      case 'segment-retired': {
        const { segment, last, hmac, olderThan, altered, unchecked, missingFrom = '?', missingTo } = record;
        if (!isLate) this.#start.addRetirement({ last, hmac, olderThan });
        if (altered !== undefined) yield finding('retired-altered', { segment, altered });
        if (missingTo !== undefined) yield finding('retired-missing', { from: missingFrom, to: missingTo });
        if (unchecked !== undefined) yield finding('retired-unchecked', { segment, key: unchecked });
        return;
      }
      case 'recovered': {
        const { segment, line, file, afterStop } = record;
        // A gateway gives no name twice.
        if (!this.#aside.has(file)) this.#aside.set(file, record);
        if (afterStop) yield finding('recovered-after-stop', { segment, line, file });
        return;
      }
      case 'records-lost':
        yield this.#recordsLost(record);
        return;
      case 'signed-at-start': {
        const { first: from, last: to } = record;
        yield finding('signed-at-start', { from, to });
        return;
      }
      case 'worker-heads':
        this.#readHeads(record.heads, record.ended, isLate);
        return;
      case 'start':
        this.#ended.push(...this.#running.values());
        this.#running.clear();
        return;
      case 'log-begun-anew':
      case 'signing-key-changed':
        yield finding(record.event);
    }
  }

  /** The end of a worker's chain implies all before it, unless it is late; but the next process continues what it finds. */
  #readHeads(heads: readonly Head[], ended: boolean, isLate: boolean): void {
    for (const head of heads) {
      if (!isLate) this.#running.delete(head.replica);
      if (ended || isLate) this.#ended.push(head);
      else this.#running.set(head.replica, head);
    }
  }

  #recordsLost({ log: replica, last: to, end = to, hmac }: Loss): Finding {
    const from = to > end ? { from: end + 1 } : {};
    const log = replica === this.#replica ? {} : { log: replica };
    return finding('records-lost', { ...from, to, ...log, ...this.#lossOf({ replica, seq: to, hmac }) });
  }

  #checkHeads(): void {
    const { first, retirement } = this.#start;
    for (const head of this.#heads) {
      if (this.#seen.has(`${head.seq}:${head.hmac}`)) {
        this.#checkProven(head);
        continue;
      }
      const isBefore = head.seq < first;
      if (!isBefore || retirement === undefined) this.#add(this.#missedHead(head, isBefore));
      else if (head.source === GIVEN) this.#add(finding('head-retired', { seq: head.seq }));
    }
  }

  /** Without their key, seals can be copied: only a signed head shows that the records of a head are those of the log. */
  #checkProven({ seq, source }: ExpectedHead): void {
    if (this.#trees === undefined || this.#trees.isProven(seq)) return;
    this.#add(finding(source === GIVEN ? 'head-unproven' : 'worker-head-unproven', { seq, source }));
  }

  #missedHead(head: ExpectedHead, missing: boolean): Finding {
    const { seq, source } = head;
    const end = this.#end?.seq ?? 0;
    if (head.mayBeAhead && seq >= end) return finding('head-ahead', { seq, source });
    const facts = { seq, source, ...(source !== GIVEN && this.#lossOf(head)) };
    if (missing) return finding('head-missing', facts);
    if (seq > end) return finding('log-truncated', { ...facts, end });
    return finding(seq === end ? 'end-altered' : 'log-rewritten', facts);
  }

  /** The name that a loss has for `--known-loss`, and whether it was given. */
  #lossOf({ replica, seq, hmac }: Head): { loss: string; known: boolean } {
    const loss = formatHead({ replica, seq, hmac });
    return { loss, known: this.#options.knownLosses?.some((each) => formatHead(each) === loss) ?? false };
  }

  async #checkFiles(folder: string, oldest: Segment | undefined): Promise<void> {
    const names = await readdir(folder);
    for (const name of names) {
      if (isSetAside(name)) await this.#checkAside(folder, name);
      else if (isStray(name)) this.#add(finding('file-name-invalid'), name);
    }
    for (const { file, segment, sha256 } of this.#aside.values()) {
      // Not by name: that of a segment changes when it is compressed.
      const kept = oldest !== undefined && Number.parseInt(segment, 10) >= oldest.first;
      if (kept && sha256 !== '' && !names.includes(file)) this.#add(finding('set-aside-missing'), file);
    }
  }

  async #checkAside(folder: string, name: string): Promise<void> {
    const aside = this.#aside.get(name);
    if (aside === undefined) return this.#add(finding('set-aside', {}), name);
    const { bytes, lines, line, segment } = aside;
    this.#add(finding('set-aside', { bytes, lines, line, segment }), name);
    if (aside.sha256 === '') return;
    const same = await digestOf(join(folder, name)).then(
      (digest) => digest === aside.sha256,
      () => false,
    );
    if (!same) this.#add(finding('set-aside-altered'), name);
  }

  #add(found: Finding, segment = '', line = 0): void {
    const { kind, facts, message } = found;
    this.#findings.push({ replica: this.#replica, segment, line, kind, facts, message });
  }
}
