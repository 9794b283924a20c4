import type { KeyObject } from 'node:crypto';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { messageOf } from '../../base/error-code.ts';
import { isSignedBy, parseCheckpoint } from '../checkpoint.ts';
import type { WitnessKey } from '../cosignature.ts';
import { type Finding, finding } from '../findings.ts';
import type { CosignedHead } from '../segments/cosigned-heads.ts';
import { isStamped, stampedName } from '../segments/segment.ts';
import { type StampedHead, stampedHeads } from '../segments/stamped-heads.ts';
import type { LogTree } from '../segments/tree-walk.ts';
import { checkToken, SigningCertificateError } from '../timestamp.ts';
import {
  addCosigned,
  addExpected,
  CosignedCheck,
  type CosignedCounts,
  type ExpectedHead,
  NONE_COSIGNED,
  timeText,
} from './cosigned-check.ts';

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
    for await (const [line, head] of stampedHeads(join(this.#options.folder, file))) {
      this.#found += 1;
      await this.#expect(head).catch((error: unknown) => {
        const facts = { file, at: line, reason: messageOf(error) };
        const kind = error instanceof SigningCertificateError ? 'timestamp-certificate' : 'timestamp-invalid';
        this.#findings.push(finding(kind, facts));
      });
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
      for (const [seq, [head]] of heads) yield finding(kind, { seq, time: timeText(head?.time ?? 0) });
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
