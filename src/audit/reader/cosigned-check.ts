import { cosignatureOf, type WitnessKey } from '../cosignature.ts';
import { type Finding, finding } from '../findings.ts';
import { type CosignedHead, cosignedHeads } from '../segments/cosigned-heads.ts';
import type { LogTree } from '../segments/tree-walk.ts';

/** A head that a witness or an authority has confirmed, and that the log has to explain. */
export interface ExpectedHead {
  readonly first: number;
  readonly size: number;
  readonly root: string;
  /** When it was confirmed, in Unix milliseconds. */
  readonly time: number;
}

/** The heads of logs that witnesses cosigned. */
export interface CosignedCounts {
  /** Cosigned heads that are those of the log, and records under them. */
  readonly cosigned: number;
  readonly cosignedRecords: number;
  /** When the last of them was cosigned, in Unix milliseconds; 0: none was. */
  readonly cosignedAt: number;
}

export const NONE_COSIGNED: CosignedCounts = { cosigned: 0, cosignedRecords: 0, cosignedAt: 0 };

/** Adds up the counts of several logs. */
export function addCosigned(counts: readonly CosignedCounts[]): CosignedCounts {
  return {
    cosigned: counts.reduce((sum, { cosigned }) => sum + cosigned, 0),
    cosignedRecords: counts.reduce((sum, { cosignedRecords }) => sum + cosignedRecords, 0),
    cosignedAt: Math.max(0, ...counts.map(({ cosignedAt }) => cosignedAt)),
  };
}

export interface CosignedOptions {
  readonly folder: string;
  readonly replica: string;
  readonly witnesses: readonly WitnessKey[];
  /** Heads that a witness has. */
  readonly given: readonly CosignedHead[];
}

/** Compares the heads that witnesses cosigned with the tree of one process's log, while a walk makes that. */
export class CosignedCheck {
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
   * Begins the segment with that first record, before it is read, and reads its heads. Their order says nothing: whoever
   * has the folder can change it.
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
      yield finding('end-uncosigned', { records: this.#end - this.#cosignedEnd, at: timeText(time) });
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
export function addExpected(expected: Map<number, ExpectedHead[]>, head: ExpectedHead): void {
  const last = lastOf(head);
  const heads = expected.get(last);
  const isKnown = heads?.some((each) => each.first === head.first && each.root === head.root);
  if (heads === undefined) expected.set(last, [head]);
  else if (isKnown !== true) heads.push(head);
}

/** Number of the last record under a head. */
export function lastOf({ first, size }: Pick<ExpectedHead, 'first' | 'size'>): number {
  return first + size - 1;
}

function factsOf(head: ExpectedHead): { seq: number; at: string } {
  return { seq: lastOf(head), at: timeText(head.time) };
}

/** A time in Unix milliseconds as findings have it. */
export function timeText(time: number): string {
  return new Date(time).toISOString().replace('.000Z', 'Z');
}
