import type { KeyObject } from 'node:crypto';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { messageOf } from '../../base/error-code.ts';
import { formatTime } from '../../base/units.ts';
import {
  type Checkpoint,
  cosignatureOf,
  isSignedBy,
  parseCheckpoint,
  type WitnessKey,
} from '../checkpoint.ts';
import { type Finding, finding, type PlacedFinding } from '../findings.ts';
import { isSelected, processOf } from '../replica-name.ts';
import { MOST_ERRORS } from '../segments/chain-walk.ts';
import { cosignedHeads, type StampedHead, stampedHeads } from '../segments/head-files.ts';
import { foldersIn, isStamped, stampedName } from '../segments/segment.ts';
import type { LogTree } from '../segments/tree-walk.ts';
import { checkToken, SigningCertificateError } from '../timestamp.ts';

/** The witnesses and authorities whose statements about the heads of a log are checked. */
export interface HeadCheckOptions {
  readonly directory: string;
  /** Public keys that signed heads: only records under a head of theirs count. Undefined: heads are not checked. */
  readonly publicKeys?: readonly KeyObject[] | undefined;
  /** Witnesses whose cosignatures are checked, with `publicKeys`; and heads that a witness has. */
  readonly witnesses?: readonly WitnessKey[] | undefined;
  readonly witnessHeads?: readonly Checkpoint[] | undefined;
  /** PEM: the authorities of time stamps, which are checked with `publicKeys`. */
  readonly timestampAuthorities?: string | undefined;
}

/** The heads of logs that others have signed or stamped. */
export interface HeadCounts {
  /** Cosigned heads that are those of the log, and records under them. */
  readonly cosigned: number;
  readonly cosignedRecords: number;
  /** When the last of them was cosigned, in Unix milliseconds; 0: none was. */
  readonly cosignedAt: number;
  /** Heads of the log that have a time stamp. */
  readonly stamped: number;
  /** The latest time stamp, in Unix milliseconds; 0: there is none. */
  readonly stampedAt: number;
}

/** A head that a witness or an authority has confirmed, and that the log has to explain. */
interface ExpectedHead {
  readonly first: number;
  readonly size: number;
  readonly root: string;
  /** When it was confirmed, in Unix milliseconds. */
  readonly time: number;
}

/** The clocks of a gateway and of who confirms its heads may differ by so much, in milliseconds. */
const CLOCKS_DIFFER_MS = 86_400_000;

/** Number of the last record under a head. */
function lastOf({ first, size }: Pick<ExpectedHead, 'first' | 'size'>): number {
  return first + size - 1;
}

function factsOf(head: ExpectedHead): { seq: number; at: string } {
  return { seq: lastOf(head), at: formatTime(head.time) };
}

/**
 * The first segment of a log: its first record, in a tree or not, and when it was begun, in Unix milliseconds, as the
 * gateway says that removed what was before it; NaN: none says so.
 */
interface Oldest {
  readonly first: number;
  readonly begun: number;
}

/** Heads that are looked for in the tree of one process's log. */
class ExpectedHeads {
  /** By the number of the last record. */
  readonly #byLast = new Map<number, ExpectedHead[]>();
  /** The first record in a tree, and the last one; 0: none is. */
  start = 0;
  end = 0;

  /** Adds a head, unless it is there: a file can have it any number of times. */
  add(head: ExpectedHead): void {
    const heads = this.#byLast.get(lastOf(head)) ?? [];
    const isKnown = heads.some((each) => each.first === head.first && each.root === head.root);
    if (!isKnown) this.#byLast.set(lastOf(head), [...heads, head]);
  }

  /** Takes the tree after each record; returns the heads that are heads of it. */
  compare({ first, tree }: LogTree): readonly ExpectedHead[] {
    const last = first + tree.size - 1;
    this.start ||= last;
    this.end = Math.max(this.end, last);
    const heads = this.#byLast.get(last);
    if (heads === undefined) return NO_HEADS;
    const wrong = heads.filter((head) => head.first !== first || head.root !== tree.root);
    if (wrong.length > 0) this.#byLast.set(last, wrong);
    else this.#byLast.delete(last);
    return heads.filter((head) => !wrong.includes(head));
  }

  /**
   * The heads that were not found, by their place: before the log, in it, or behind its end. A log that was written anew
   * without a tree has the records of a head in none, or in no segment if the gateway has retired it since. What lies
   * before a segment was confirmed before that began.
   */
  left({ first, begun }: Oldest): Readonly<Record<'before' | 'within' | 'ahead', readonly ExpectedHead[]>> {
    const heads = [...this.#byLast.values()].flat().sort((a, b) => lastOf(a) - lastOf(b));
    const isBefore = (head: ExpectedHead): boolean =>
      lastOf(head) < first && head.time <= begun + CLOCKS_DIFFER_MS;
    return {
      before: heads.filter(isBefore),
      within: heads.filter((head) => !isBefore(head) && lastOf(head) <= this.end),
      ahead: heads.filter((head) => lastOf(head) > this.end),
    };
  }
}

const NO_HEADS: readonly ExpectedHead[] = [];

/** Compares the heads that others have signed or stamped with the tree of one process's log, while a walk makes that. */
export class HeadChecks {
  readonly #options: HeadCheckOptions;
  readonly #replica: string;
  readonly #folder: string;
  readonly #cosigned = new ExpectedHeads();
  /** The last record under a cosigned head. */
  #cosignedEnd = 0;
  readonly #stamped = new ExpectedHeads();
  /** Files with time stamps whose segment was not read yet; undefined: no segment was begun. */
  #stampedFiles: Set<string> | undefined;
  /** Lines of time-stamped heads, right or wrong, and findings about wrong ones. */
  #stampedLines = 0;
  readonly #stampFindings: Finding[] = [];
  readonly #counts = { cosigned: 0, cosignedRecords: 0, cosignedAt: 0, stamped: 0, stampedAt: 0 };

  constructor(options: HeadCheckOptions, replica: string) {
    this.#options = options;
    this.#replica = replica;
    this.#folder = join(options.directory, replica);
    for (const head of options.witnessHeads ?? []) this.#expectCosigned(head);
  }

  get counts(): HeadCounts {
    return this.#counts;
  }

  /**
   * Begins the segment with that first record, before it is read, and reads its heads. Their order says nothing: anyone
   * who has the folder can change it. Undefined: there is no further segment.
   * @throws Error if a file with its heads cannot be read
   */
  async begin(segment: number | undefined): Promise<void> {
    const { witnesses, timestampAuthorities } = this.#options;
    if (witnesses !== undefined && segment !== undefined) {
      for await (const head of cosignedHeads(this.#folder, segment)) {
        // One that is not in the file of its segment was put there by somebody, who could have left it out as well.
        if (lastOf(head) > this.#cosigned.end) this.#expectCosigned(head);
      }
    }
    if (timestampAuthorities === undefined) return;
    // Listed at the start: a running gateway may begin further segments.
    this.#stampedFiles ??= new Set((await readdir(this.#folder)).filter(isStamped));
    const names = segment === undefined ? [...this.#stampedFiles].sort() : [stampedName(segment)];
    for (const name of names) {
      this.#stampedFiles.delete(name);
      await this.#readStamped(name, timestampAuthorities);
    }
  }

  /** Takes the tree after each record. */
  compare(tree: LogTree): void {
    const counts = this.#counts;
    for (const { time } of this.#cosigned.compare(tree)) {
      counts.cosigned += 1;
      counts.cosignedRecords += this.#uncosigned;
      counts.cosignedAt = Math.max(counts.cosignedAt, time);
      this.#cosignedEnd = this.#cosigned.end;
    }
    for (const { time } of this.#stamped.compare(tree)) {
      counts.stamped += 1;
      counts.stampedAt = Math.max(counts.stampedAt, time);
    }
  }

  /** Findings that remain after the last segment. `isCopy`: the newest segments may be missing. */
  *findings(oldest: Oldest, isCopy: boolean): Generator<Finding> {
    if (this.#options.witnesses !== undefined) yield* this.#cosignedFindings(oldest, isCopy);
    if (this.#options.timestampAuthorities !== undefined) yield* this.#stampedFindings(oldest, isCopy);
  }

  *#cosignedFindings(oldest: Oldest, isCopy: boolean): Generator<Finding> {
    const { end } = this.#cosigned;
    const left = this.#cosigned.left(oldest);
    for (const head of left.within.slice(0, 1)) yield finding('cosigned-rewritten', factsOf(head));
    const kind = isCopy ? 'cosigned-ahead' : 'cosigned-truncated';
    for (const head of left.ahead.slice(-1)) yield finding(kind, { ...factsOf(head), end });
    for (const head of left.before.slice(-1)) yield finding('cosigned-retired', factsOf(head));
    if (end === 0) return;
    const time = Math.max(this.#counts.cosignedAt, ...left.before.map((head) => head.time));
    const records = this.#uncosigned;
    if (time === 0) yield finding('cosignature-missing');
    else if (records > 0) yield finding('end-uncosigned', { records, at: formatTime(time) });
  }

  *#stampedFindings(oldest: Oldest, isCopy: boolean): Generator<Finding> {
    yield* this.#stampFindings;
    // Not those before the log: retention may have ended between the removal of a segment and that of its heads.
    const { within, ahead } = this.#stamped.left(oldest);
    const wrong = isCopy ? within : [...within, ...ahead];
    for (const { seq, at: time } of wrong.slice(0, 1).map(factsOf)) {
      yield finding('timestamp-mismatch', { seq, time });
    }
    for (const { seq, at: time } of isCopy ? ahead.slice(-1).map(factsOf) : []) {
      yield finding('timestamp-ahead', { seq, time });
    }
    if (this.#stamped.end > 0 && this.#stampedLines === 0) yield finding('timestamp-missing');
  }

  /** Records after the last cosigned head. */
  get #uncosigned(): number {
    const { start, end } = this.#cosigned;
    return end - Math.max(this.#cosignedEnd, start - 1);
  }

  /** Heads that no witness cosigned say nothing. */
  #expectCosigned(checkpoint: Checkpoint): void {
    const { replica, first, size, root } = checkpoint;
    if (replica !== this.#replica || size === 0) return;
    const cosignature = cosignatureOf(checkpoint, this.#options.witnesses ?? []);
    if (cosignature !== undefined) this.#cosigned.add({ first, size, root, time: cosignature.time });
  }

  async #readStamped(file: string, authorities: string): Promise<void> {
    const most = this.#stampFindings.length + MOST_ERRORS;
    for await (const [line, head] of stampedHeads(join(this.#folder, file))) {
      this.#stampedLines += 1;
      await this.#expectStamped(head, authorities).catch((error: unknown) => {
        const facts = { file, at: line, reason: messageOf(error) };
        const kind = error instanceof SigningCertificateError ? 'timestamp-certificate' : 'timestamp-invalid';
        this.#stampFindings.push(finding(kind, facts));
      });
      // Anybody can write wrong ones without end.
      if (this.#stampFindings.length >= most) return;
    }
  }

  /** @throws Error if the head or its time stamp is not right */
  async #expectStamped({ note, token }: StampedHead, authorities: string): Promise<void> {
    const checkpoint = parseCheckpoint(note);
    const { publicKeys = [] } = this.#options;
    if (checkpoint?.replica !== this.#replica || !isSignedBy(checkpoint, publicKeys)) {
      throw new Error('none of the given public keys signed the text as a head of this log');
    }
    const { time } = await checkToken(token, note, authorities);
    const { first, size, root } = checkpoint;
    this.#stamped.add({ first, size, root, time });
  }
}

/** A log that somebody has seen. */
interface NamedLog {
  readonly replica: string;
  /** True: it need not be there, as in a copy. */
  readonly mayBeAhead: boolean;
}

/** The logs that should be there and are not: heads name them, or there are logs of workers without their primary's. */
export async function absentLogs(
  { directory, witnessHeads = [] }: HeadCheckOptions,
  selected: string | undefined,
  folders: readonly string[],
  heads: readonly NamedLog[],
): Promise<PlacedFinding[]> {
  const named = heads.filter(({ replica, mayBeAhead }) => isSelected(selected, replica) && !mayBeAhead);
  const primaries = folders.map((folder) => processOf(folder).replica);
  const there = new Set(await foldersIn(directory));
  const seen = witnessHeads.map(({ replica }) => replica);
  const wanted = new Set([...named.map(({ replica }) => replica), ...seen, ...primaries]);
  const absent = [...wanted].filter((replica) => !there.has(replica));
  return absent.map((replica) => {
    const process = processOf(replica).worker > 0 ? 'worker' : 'replica';
    const found = primaries.includes(replica)
      ? finding('primary-missing')
      : finding('log-missing', { process });
    return { replica, segment: '', line: 0, ...found };
  });
}
