import type { KeyObject } from 'node:crypto';
import { type Checkpoint, checkpointIn, isSignedBy } from '../checkpoint.ts';
import { type Finding, finding } from '../findings.ts';
import { headOf, linesOf, lineType } from '../line.ts';
import { type Digest, digestText, leafHash, MerkleTree, parseDigest } from '../merkle.ts';
import { type AdminRecord, parseAdmin } from './admin-records.ts';
import { type AdminLine, type IntegrityError, MOST_ERRORS, type WalkedBatch } from './chain-walk.ts';
import type { SegmentHeader } from './segment.ts';

/** Time of the last records that may be under no signed head, in milliseconds. A gateway signs one each second. */
const MAX_UNSIGNED_MS = 60_000;

/** The tree of a log: leaf 0 is record `first`. */
export interface LogTree {
  readonly first: number;
  readonly tree: MerkleTree;
}

/** The member `tree` of a header. */
export function headerTree({ first, tree }: LogTree): NonNullable<SegmentHeader['tree']> {
  return { first, roots: tree.roots.map(digestText) };
}

/** The tree of the records before a segment; undefined: the header has none, or one that cannot be. */
export function treeOf({ first, tree }: SegmentHeader): LogTree | undefined {
  if (tree === undefined || tree.first > first) return undefined;
  const roots = tree.roots.map((each) => parseDigest(each) ?? '');
  const before = roots.includes('') ? undefined : MerkleTree.of(first - tree.first, roots);
  return before && { first: tree.first, tree: before };
}

/** A checkpoint that is signed, and has the root of the records before it. */
interface SignedHead {
  readonly checkpoint: Checkpoint;
  /** Number of its line in the segment: it covers the lines before it, and none behind it. */
  readonly line: number;
}

/** The result of one batch. `head`: its last checkpoint that is right. */
interface TakenBatch {
  readonly head: SignedHead | undefined;
  readonly errors: readonly IntegrityError[];
}

interface TreeWalkOptions {
  readonly replica: string;
  /** Public keys that may have signed a checkpoint; undefined: signatures are not checked. */
  readonly keys: readonly KeyObject[] | undefined;
  /** Called for each record in its order, with its line, which is valid until the call returns. */
  readonly onLeaf?: (leaf: Digest, line: Buffer) => void;
  /** Called with the tree after each record. */
  readonly onTree?: (tree: LogTree) => void;
}

/**
 * Follows the tree of a log through its segments, and compares its checkpoints with it. After an error it goes on with
 * the next header, which the next checkpoint proves: its root has those of the header under it.
 */
export class TreeWalk {
  readonly #options: TreeWalkOptions;
  #current: LogTree | undefined;
  /** True if nothing more can be compared in this segment. */
  #lost = false;
  #hasBegun = false;
  #signedSize = 0;
  /** Wrong checkpoints of this segment. */
  #errors = 0;
  /** The last checkpoint that was right, as a line; undefined: records or another tree have followed. */
  #last: { readonly text: string; readonly checkpoint: Checkpoint } | undefined;
  /** Checkpoints of this segment after another one of the same tree. */
  #repeated = 0;
  #since = 1;
  /** The earliest and the latest time of the records after the last checkpoint; empty: there are none. */
  #earliest = '';
  #latest = '';
  /** The last checkpoint that was right; undefined: there was none. */
  head: Checkpoint | undefined;
  /** Checkpoints that were right, and records under them. */
  checkpoints = 0;
  records = 0;
  /** Numbers of the first and the last record under one; 0: there is none. */
  #provenStart = 0;
  #provenEnd = 0;

  constructor(options: TreeWalkOptions) {
    this.#options = options;
  }

  /** The tree of all records so far; undefined: there is none, or it cannot be told. */
  get tree(): LogTree | undefined {
    return this.#lost ? undefined : this.#current;
  }

  /** True if a checkpoint that was right covers that record. 0, before the first record, needs none. */
  isProven(seq: number): boolean {
    return seq === 0 || (seq >= this.#provenStart && seq <= this.#provenEnd);
  }

  /** Records of the present tree after its last checkpoint. */
  get unsigned(): number {
    return this.#lost || this.#current === undefined ? 0 : this.#current.tree.size - this.#signedSize;
  }

  /** The finding if the log ends with such records; undefined: there are none. */
  get end(): Finding | undefined {
    const { unsigned: records } = this;
    if (records === 0) return undefined;
    const ms = Date.parse(this.#latest) - Date.parse(this.#earliest);
    // A time that cannot be read compares with nothing.
    if (ms <= MAX_UNSIGNED_MS) return finding('end-unsigned', { records });
    return finding('heads-missing', { records, seconds: Math.round(ms / 1000) });
  }

  /** Begins a segment. `header` undefined: it has none that can be believed. */
  #begin(header: SegmentHeader | undefined): Finding | undefined {
    const next = header && treeOf(header);
    this.#since = 1;
    this.#errors = 0;
    this.#repeated = 0;
    if (next !== undefined) return this.#continueWith(next);
    if (header === undefined || header.tree !== undefined) {
      this.#lost = true;
      return header && finding('tree-broken');
    }
    const hadTree = this.#current !== undefined;
    this.#current = undefined;
    this.#lost = false;
    this.#hasBegun = true;
    return finding(hadTree ? 'signing-ended' : 'segment-unsigned');
  }

  #continueWith(next: LogTree): Finding | undefined {
    const [before, unsigned] = [this.#current, this.unsigned];
    const isFollowed = this.#hasBegun && !this.#lost;
    this.#current = next;
    this.#last = undefined;
    this.#lost = false;
    this.#hasBegun = true;
    const { first, tree } = next;
    const continues = before?.first === first;
    if (continues && isFollowed && before.tree.equals(tree)) return undefined;
    // Records before the first segment are not there to be counted.
    this.#signedSize = tree.size;
    [this.#earliest, this.#latest] = ['', ''];
    if (tree.size === 0) return before && finding('tree-restarted', { first, unsigned });
    // In the first segment and after an error, only the next checkpoint can say whether this is the tree.
    return isFollowed ? finding('tree-broken') : undefined;
  }

  /** Takes the next batch. */
  take(batch: WalkedBatch): TakenBatch {
    const { line, header, errors: before } = batch;
    // A first line that is no header is an error. Without a line there is none: the tree goes on in the next file.
    const begins = line === 1 && (header !== undefined || before.length > 0);
    const found = begins ? this.#begin(header) : undefined;
    const errors: IntegrityError[] = found === undefined ? [] : [{ ...found, line: 1 }];
    return { head: this.#read(batch, errors), errors };
  }

  /** Returns the last checkpoint of the batch that is right. */
  #read(
    { seal, trust, lines, leaves, line: from }: WalkedBatch,
    errors: IntegrityError[],
  ): SignedHead | undefined {
    let head: SignedHead | undefined;
    // Lines after the last seal are not part of the log. The walk has returned the lines that do not fit their seal.
    if (trust === 'refused' && seal !== undefined) this.#lost = true;
    if (trust === 'refused' || this.#lost || this.#current === undefined) return undefined;
    let line = from - 1;
    for (const [start, end] of linesOf(lines)) {
      line += 1;
      const type = lineType(lines, start, end);
      if (type === 'record')
        this.#addLeaf(leaves?.[line - from] ?? leafHash(lines, start, end), lines, start, end);
      if (type !== 'checkpoint' || this.#lost) continue;
      const found = this.#check(lines.toString('utf8', start, end), line);
      if ('checkpoint' in found) head = found;
      else errors.push({ ...this.#counted(found), line });
    }
    return head;
  }

  /** After too many errors of one segment, its tree says nothing more: a file can have any number of wrong heads. */
  #counted(found: Finding): Finding {
    this.#errors += 1;
    if (this.#errors <= MOST_ERRORS) return found;
    this.#lost = true;
    return finding('errors-omitted');
  }

  #addLeaf(leaf: Digest, lines: Buffer, start: number, end: number): void {
    // Not that of the last one: someone who writes records anew chooses their times.
    const time = headOf(lines, start)?.time ?? 'unknown';
    if (this.#earliest === '' || time < this.#earliest) this.#earliest = time;
    if (time > this.#latest) this.#latest = time;
    this.#last = undefined;
    this.#current?.tree.add(leaf);
    this.#options.onLeaf?.(leaf, lines.subarray(start, end));
    if (this.#current !== undefined) this.#options.onTree?.(this.#current);
  }

  #check(text: string, line: number): SignedHead | Finding {
    // Anybody can repeat a head. Checking any number of them in a compressed file would take hours.
    if (text === this.#last?.text) return { checkpoint: this.#last.checkpoint, line };
    if (this.#last !== undefined) this.#repeated += 1;
    if (this.#repeated > MOST_ERRORS) {
      this.#lost = true;
      return finding('errors-omitted');
    }
    const { replica, keys } = this.#options;
    const { first = 0, tree = MerkleTree.empty() } = this.#current ?? {};
    const checkpoint = checkpointIn(text);
    if (checkpoint === undefined) return finding('checkpoint-malformed');
    if (keys !== undefined && !isSignedBy(checkpoint, keys)) return finding('checkpoint-invalid');
    const isOwn = checkpoint.replica === replica && checkpoint.first === first;
    if (!isOwn || checkpoint.size !== tree.size || checkpoint.root !== tree.root) {
      this.#lost = true;
      return finding('tree-mismatch', { from: this.#since, to: line - 1 });
    }
    this.head = checkpoint;
    this.checkpoints += 1;
    this.records += tree.size - this.#signedSize;
    this.#provenStart ||= first;
    this.#provenEnd = first + tree.size - 1;
    this.#signedSize = tree.size;
    [this.#earliest, this.#latest] = ['', ''];
    this.#since = line + 1;
    this.#last = { text, checkpoint };
    return { checkpoint, line };
  }
}

/**
 * The most admin records, and characters of them, that wait for a signed head. A gateway signs one each second; without
 * the key, somebody could write any number of records under none.
 */
const MAX_RECORDS = 10_000;
const MAX_CHARACTERS = 16 * 1024 * 1024;

/** An admin record of which readers make something, and its segment. */
export interface PlacedAdmin extends AdminLine {
  readonly record: AdminRecord;
  readonly name: string;
  /** True: a start found it under no head, so that whoever had the key of the seals can have written it. */
  readonly isLate: boolean;
}

/** The admin records among lines of a segment of which readers make something. */
export function adminRecords(lines: readonly AdminLine[], name: string): PlacedAdmin[] {
  return lines.flatMap((each) => {
    const record = parseAdmin(each.line);
    return record === undefined ? [] : { ...each, record, name, isLate: false };
  });
}

/** Admin records that no signed head covers yet: nothing of them is to be believed. */
export class UnprovenRecords {
  #records: PlacedAdmin[] = [];
  #characters = 0;
  #isExceeded = false;

  /** True if there were more at once than a gateway leaves. They were dropped. */
  get isExceeded(): boolean {
    return this.#isExceeded;
  }

  /** Takes the admin records of the next batch; returns those that its head, in that line of the segment, covers. */
  next(admin: readonly PlacedAdmin[], headLine: number | undefined): readonly PlacedAdmin[] {
    if (headLine === undefined) {
      this.#add(admin);
      return [];
    }
    // A gateway writes no record behind the head of a batch; whoever seals it anew could.
    this.#add(admin.filter(({ at }) => at < headLine));
    const proven = this.#records;
    this.clear();
    this.#add(admin.filter(({ at }) => at > headLine));
    return markedLate(proven);
  }

  clear(): void {
    this.#records = [];
    this.#characters = 0;
  }

  #add(records: readonly PlacedAdmin[]): void {
    for (const record of records) {
      this.#records.push(record);
      this.#characters += record.line.length;
    }
    if (this.#records.length <= MAX_RECORDS && this.#characters <= MAX_CHARACTERS) return;
    this.#isExceeded = true;
    this.clear();
  }
}

/** The head of a start covers the records that it found under none, and its own record about them. */
function markedLate(proven: readonly PlacedAdmin[]): readonly PlacedAdmin[] {
  let late = 0;
  for (const { record } of proven) if (record.event === 'signed-at-start') late = Math.max(late, record.last);
  // Not the number in the JSON text, which can have another one behind that of the line.
  return late === 0 ? proven : proven.map((each) => ({ ...each, isLate: each.seq <= late }));
}
