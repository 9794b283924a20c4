import type { KeyObject } from 'node:crypto';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { messageOf } from '../../base/error-code.ts';
import { formatTime } from '../../base/units.ts';
import { isSignedBy, parseCheckpoint } from '../checkpoint.ts';
import { cosignatureOf, type WitnessKey } from '../cosignature.ts';
import { type Finding, finding } from '../findings.ts';
import { MOST_ERRORS } from '../segments/chain-walk.ts';
import { type CosignedHead, cosignedHeads, type StampedHead, stampedHeads } from '../segments/head-files.ts';
import { isStamped, stampedName } from '../segments/segment.ts';
import type { LogTree } from '../segments/tree-walk.ts';
import { checkToken, SigningCertificateError } from '../timestamp.ts';

/** The witnesses and authorities whose statements about the heads of a log are checked. */
export interface HeadCheckOptions {
  readonly directory: string;
  /** Public keys that signed heads: only records under a head of theirs count. Undefined: heads are not checked. */
  readonly publicKeys?: readonly KeyObject[] | undefined;
  /** Witnesses whose cosignatures are checked, with `publicKeys`; and heads that a witness has. */
  readonly witnesses?: readonly WitnessKey[] | undefined;
  readonly witnessHeads?: readonly CosignedHead[] | undefined;
  /** PEM: the authorities of time stamps, which are checked with `publicKeys`. */
  readonly timestampAuthorities?: string | undefined;
}

/** The heads of logs that witnesses cosigned. */
export interface CosignedCounts {
  /** Cosigned heads that are those of the log, and records under them. */
  readonly cosigned: number;
  readonly cosignedRecords: number;
  /** When the last of them was cosigned, in Unix milliseconds; 0: none was. */
  readonly cosignedAt: number;
}

const NONE_COSIGNED: CosignedCounts = { cosigned: 0, cosignedRecords: 0, cosignedAt: 0 };

/** Adds up the counts of several logs. */
function addCosigned(counts: readonly CosignedCounts[]): CosignedCounts {
  return {
    cosigned: counts.reduce((sum, { cosigned }) => sum + cosigned, 0),
    cosignedRecords: counts.reduce((sum, { cosignedRecords }) => sum + cosignedRecords, 0),
    cosignedAt: Math.max(0, ...counts.map(({ cosignedAt }) => cosignedAt)),
  };
}

/** The heads of logs that others have signed or stamped. */
export interface HeadCounts extends CosignedCounts {
  /** Heads of the log that have a time stamp. */
  readonly stamped: number;
  /** The latest time stamp, in Unix milliseconds; 0: there is none. */
  readonly stampedAt: number;
}

/** Adds up the counts of several logs. */
export function addCounts(counts: readonly HeadCounts[]): HeadCounts {
  return {
    ...addCosigned(counts),
    stamped: counts.reduce((sum, { stamped }) => sum + stamped, 0),
    stampedAt: Math.max(0, ...counts.map(({ stampedAt }) => stampedAt)),
  };
}

/** Compares the heads that others have signed or stamped with the tree of one process's log, while a walk makes that. */
export class HeadChecks {
  readonly #cosigned: CosignedCheck | undefined;
  readonly #stamped: StampedCheck | undefined;

  constructor(options: HeadCheckOptions, replica: string) {
    const { directory, publicKeys, witnesses, witnessHeads: given = [], timestampAuthorities } = options;
    const folder = join(directory, replica);
    this.#cosigned = witnesses && new CosignedCheck({ folder, replica, witnesses, given });
    if (timestampAuthorities === undefined || publicKeys === undefined) return;
    this.#stamped = new StampedCheck({ folder, replica, publicKeys, authorities: timestampAuthorities });
  }

  get counts(): HeadCounts {
    const { stamped = 0, stampedAt = 0 } = this.#stamped ?? {};
    return { ...(this.#cosigned?.counts ?? NONE_COSIGNED), stamped, stampedAt };
  }

  /**
   * Begins the segment with that first record, before it is read; undefined: there is no further one.
   * @throws Error if a file with its heads cannot be read
   */
  async begin(segment: number | undefined): Promise<void> {
    if (segment !== undefined) await this.#cosigned?.begin(segment);
    await this.#stamped?.begin(segment);
  }

  /** Takes the tree after each record. */
  compare(tree: LogTree): void {
    this.#cosigned?.compare(tree);
    this.#stamped?.compare(tree);
  }

  /** Findings that remain after the last segment. `isCopy`: the newest segments may be missing. */
  *findings(isCopy: boolean): Generator<Finding> {
    yield* this.#cosigned?.findings(isCopy) ?? [];
    yield* this.#stamped?.findings(isCopy) ?? [];
  }
}

/** A head that a witness or an authority has confirmed, and that the log has to explain. */
interface ExpectedHead {
  readonly first: number;
  readonly size: number;
  readonly root: string;
  /** When it was confirmed, in Unix milliseconds. */
  readonly time: number;
}

interface CosignedOptions {
  readonly folder: string;
  readonly replica: string;
  readonly witnesses: readonly WitnessKey[];
  /** Heads that a witness has. */
  readonly given: readonly CosignedHead[];
}

/** Compares the heads that witnesses cosigned with the tree of one process's log, while a walk makes that. */
class CosignedCheck {
  readonly #options: CosignedOptions;
  /** By the number of the last record. */
  readonly #expected = new Map<number, ExpectedHead[]>();
  readonly #wrong: ExpectedHead[] = [];
  #counts = NONE_COSIGNED;
  /** The first record that was compared, the last one, and the last one under a cosigned head. */
  #start = 0;
  #end = 0;
  #cosignedEnd = 0;

  constructor(options: CosignedOptions) {
    this.#options = options;
    for (const head of options.given) this.#expect(head);
  }

  get counts(): CosignedCounts {
    return this.#counts;
  }

  /**
   * Begins the segment with that first record, before it is read, and reads its heads. Their order says nothing: anyone
   * who has the folder can change it.
   * @throws Error if the file of its heads cannot be read
   */
  async begin(segment: number): Promise<void> {
    for await (const head of cosignedHeads(this.#options.folder, segment)) {
      // One that is not in the file of its segment was put there by somebody, who could have left it out as well.
      if (lastOf(head.checkpoint) > this.#end) this.#expect(head);
    }
  }

  /** Takes the tree after each record. */
  compare({ first, tree }: LogTree): void {
    const last = first + tree.size - 1;
    if (this.#start === 0) [this.#start, this.#cosignedEnd] = [last, last - 1];
    this.#end = last;
    const heads = this.#expected.get(last);
    if (heads === undefined) return;
    this.#expected.delete(last);
    for (const head of heads) {
      if (head.first === first && head.root === tree.root) this.#count(head, last);
      else this.#wrong.push(head);
    }
  }

  /** Findings that remain after the last segment. `isCopy`: the newest segments may be missing. */
  *findings(isCopy: boolean): Generator<Finding> {
    const left = [...this.#expected.values()].flat();
    const ahead = left.filter((head) => lastOf(head) > this.#end);
    const retired = left.filter((head) => lastOf(head) < this.#start);
    const between = left.filter((head) => !ahead.includes(head) && !retired.includes(head));
    const kind = isCopy ? 'cosigned-ahead' : 'cosigned-truncated';
    for (const head of [...this.#wrong, ...between].slice(0, 1)) {
      yield finding('cosigned-rewritten', factsOf(head));
    }
    for (const head of ahead.slice(-1)) yield finding(kind, { ...factsOf(head), end: this.#end });
    for (const head of retired.slice(-1)) yield finding('cosigned-retired', factsOf(head));
    if (this.#end === 0) return;
    const time = Math.max(this.#counts.cosignedAt, ...retired.map((head) => head.time));
    if (time === 0) yield finding('cosignature-missing');
    else if (this.#cosignedEnd < this.#end) {
      yield finding('end-uncosigned', { records: this.#end - this.#cosignedEnd, at: formatTime(time) });
    }
  }

  /** Heads that no witness cosigned say nothing. */
  #expect({ checkpoint }: CosignedHead): void {
    const { replica, first, size, root } = checkpoint;
    const cosignature = cosignatureOf(checkpoint, this.#options.witnesses);
    if (replica !== this.#options.replica || size === 0 || cosignature === undefined) return;
    addExpected(this.#expected, { first, size, root, time: cosignature.time });
  }

  #count({ time }: ExpectedHead, last: number): void {
    const { cosigned, cosignedRecords, cosignedAt } = this.#counts;
    this.#counts = {
      cosigned: cosigned + 1,
      cosignedRecords: cosignedRecords + last - this.#cosignedEnd,
      cosignedAt: Math.max(cosignedAt, time),
    };
    this.#cosignedEnd = last;
  }
}

/** Adds a head to those with its last record, unless it is there: a file can have it any number of times. */
function addExpected(expected: Map<number, ExpectedHead[]>, head: ExpectedHead): void {
  const last = lastOf(head);
  const heads = expected.get(last);
  const isKnown = heads?.some((each) => each.first === head.first && each.root === head.root);
  if (heads === undefined) expected.set(last, [head]);
  else if (isKnown !== true) heads.push(head);
}

/** Number of the last record under a head. */
function lastOf({ first, size }: Pick<ExpectedHead, 'first' | 'size'>): number {
  return first + size - 1;
}

function factsOf(head: ExpectedHead): { seq: number; at: string } {
  return { seq: lastOf(head), at: formatTime(head.time) };
}

interface StampedOptions {
  readonly folder: string;
  readonly replica: string;
  readonly publicKeys: readonly KeyObject[];
  /** PEM. */
  readonly authorities: string;
}

/** Compares the heads that have a time stamp with the tree of one process's log. */
class StampedCheck {
  readonly #options: StampedOptions;
  readonly #findings: Finding[] = [];
  /** By the number of the last record. */
  readonly #expected = new Map<number, ExpectedHead[]>();
  /** Files whose segment was not read yet; undefined: no segment was begun. */
  #files: Set<string> | undefined;
  /** The first record that was compared, and the last one; 0: none was. */
  #start = 0;
  #end = 0;
  #found = 0;
  stamped = 0;
  stampedAt = 0;

  constructor(options: StampedOptions) {
    this.#options = options;
  }

  /** Reads the heads of a segment; at the end, those whose segments are missing. */
  async begin(segment: number | undefined): Promise<void> {
    // Listed at the start: a running gateway may begin further segments.
    this.#files ??= new Set((await readdir(this.#options.folder)).filter(isStamped));
    const names = segment === undefined ? [...this.#files].sort() : [stampedName(segment)];
    for (const name of names) {
      this.#files.delete(name);
      await this.#read(name);
    }
  }

  async #read(file: string): Promise<void> {
    const most = this.#findings.length + MOST_ERRORS;
    for await (const [line, head] of stampedHeads(join(this.#options.folder, file))) {
      this.#found += 1;
      await this.#expect(head).catch((error: unknown) => {
        const facts = { file, at: line, reason: messageOf(error) };
        const kind = error instanceof SigningCertificateError ? 'timestamp-certificate' : 'timestamp-invalid';
        this.#findings.push(finding(kind, facts));
      });
      // Anybody can write wrong ones without end.
      if (this.#findings.length >= most) return;
    }
  }

  compare({ first, tree }: LogTree): void {
    const last = first + tree.size - 1;
    this.#start ||= last;
    this.#end = last;
    const heads = this.#expected.get(last);
    if (heads === undefined) return;
    const right = heads.filter((head) => head.first === first && head.root === tree.root);
    this.stamped += right.length;
    this.stampedAt = Math.max(this.stampedAt, ...right.map(({ time }) => time));
    const wrong = heads.filter((head) => !right.includes(head));
    if (wrong.length === 0) this.#expected.delete(last);
    else this.#expected.set(last, wrong);
  }

  *findings(isCopy: boolean): Generator<Finding> {
    yield* this.#findings;
    // Retention may have ended between the removal of a segment and that of its heads.
    const left = [...this.#expected].filter(([last]) => last >= this.#start);
    const ahead = left.filter(([last]) => isCopy && last > this.#end);
    const wrong = left.filter((each) => !ahead.includes(each));
    for (const [kind, heads] of [
      ['timestamp-mismatch', wrong.slice(0, 1)],
      ['timestamp-ahead', ahead.slice(-1)],
    ] as const) {
      for (const [seq, [head]] of heads) yield finding(kind, { seq, time: formatTime(head?.time ?? 0) });
    }
    if (this.#end > 0 && this.#found === 0) yield finding('timestamp-missing');
  }

  /** @throws Error if the head or its time stamp is not right */
  async #expect({ note, token }: StampedHead): Promise<void> {
    const { replica, publicKeys, authorities } = this.#options;
    const checkpoint = parseCheckpoint(note);
    if (checkpoint === undefined || checkpoint.replica !== replica || !isSignedBy(checkpoint, publicKeys)) {
      throw new Error('none of the given public keys signed the text as a head of this log');
    }
    const { time } = await checkToken(token, note, authorities);
    const { first, size, root } = checkpoint;
    addExpected(this.#expected, { first, size, root, time });
  }
}
