import { join } from 'node:path';
import type { Checkpoint } from '../checkpoint.ts';
import { NEWLINE } from '../line.ts';
import { type Digest, inclusionProof, LeafRange, type MerkleTree } from '../merkle.ts';
import { type ProvenRecord, parseRequestRecord, proofText, type RequestProof } from '../proof.ts';
import { ChainWalk, type WalkedBatch, walkFile } from '../segments/chain-walk.ts';
import { cosignedHeads } from '../segments/head-files.ts';
import { foldersIn, type Segment, segmentsIn } from '../segments/segment.ts';
import { readBlocks } from '../segments/segment-reader.ts';
import { type LogTree, TreeWalk, treeOf } from '../segments/tree-walk.ts';

interface ProveOptions {
  readonly directory: string;
  /** A replica with its workers, or one worker; undefined: all replicas. */
  readonly replica?: string | undefined;
  readonly requestId: string;
  /** Number of the access record, where several requests have the id. */
  readonly record?: number | undefined;
}

/** A request has no proof; the message says why. */
export class NotProvableError extends Error {
  override readonly name = 'NotProvableError';
}

/** Requests of one id that are named at most: clients choose it. */
const MOST_NAMED = 10;

/** A record of the request. */
interface Placed {
  readonly folder: string;
  readonly seq: number;
  /** Number of its access record. */
  readonly access: number;
  /** The segments of the folder, and the position of its own. */
  readonly segments: readonly Segment[];
  readonly at: number;
}

/**
 * Makes the proof of the records of a request. It needs no key: what somebody changed in the log makes a proof that
 * nobody accepts, or none.
 * @throws NotProvableError; Error if a file cannot be read
 */
export async function prove(options: ProveOptions): Promise<RequestProof> {
  const { directory, requestId, record } = options;
  const found: Placed[] = [];
  const begun: string[] = [];
  for (const folder of await foldersIn(directory, options.replica)) {
    const [oldest] = await segmentsIn(join(directory, folder));
    if (oldest !== undefined && oldest.first > 1)
      begun.push(`; ${folder} begins with record ${oldest.first}`);
    for await (const placed of recordsOf(directory, folder, requestId)) found.push(placed);
  }
  const wanted = found.filter(({ access }) => record === undefined || access === record);
  const [first] = wanted;
  if (first === undefined) {
    throw new NotProvableError(
      `the audit log in ${directory} has no record of request ${requestId}${begun.join('')}; audit verify shows whether records are missing`,
    );
  }
  const others = wanted.filter(({ folder, access }) => folder !== first.folder || access !== first.access);
  if (others.length > 0) {
    const list = [...new Set([first, ...others].map(({ folder, access }) => `${folder} ${access}`))];
    const more = list.length > MOST_NAMED ? ` and ${list.length - MOST_NAMED} more` : '';
    throw new NotProvableError(
      `several requests have the id ${requestId}: choose one by --replica and --record (${list.slice(0, MOST_NAMED).join(', ')}${more})`,
    );
  }
  const records: ProvenRecord[] = [];
  for (const each of wanted) records.push(await proofOf(directory, each));
  return { requestId, records };
}

/** The records of a request in the log of one process, in their order. */
async function* recordsOf(
  directory: string,
  folder: string,
  requestId: string,
): AsyncGenerator<Placed, void> {
  // Within a string of a record every quote is escaped, so only the member itself looks like this.
  const mark = Buffer.from(`"requestId":${JSON.stringify(requestId)},`);
  const segments = await segmentsIn(join(directory, folder));
  for (const [index, { name }] of segments.entries()) {
    for await (const { bytes, whole } of readBlocks(join(directory, folder, name))) {
      if (!whole) continue;
      for (let at = bytes.indexOf(mark); at !== -1; at = bytes.indexOf(mark, at + 1)) {
        const [start, end] = [bytes.lastIndexOf(NEWLINE, at) + 1, bytes.indexOf(NEWLINE, at)];
        const record = parseRequestRecord(bytes.toString('utf8', start, end));
        if (record?.requestId !== requestId) continue;
        const { seq, access = seq } = record;
        yield { folder, seq, access, segments, at: index };
      }
    }
  }
}

/** The proof of a record up to the next cosigned head behind it, or, if there is none, up to the next signed head. */
async function proofOf(directory: string, { folder, seq, segments, at }: Placed): Promise<ProvenRecord> {
  const target = await cosignedHeadOver(join(directory, folder), segments.slice(at), seq);
  const path = new ProofPath(folder, seq, target);
  for (const { name, first } of segments.slice(at)) {
    const walk = new ChainWalk({ keys: 'unknown', replica: folder, first });
    let proven: ProvenRecord | undefined;
    await walkFile(walk, join(directory, folder, name), (batch) => {
      proven = path.take(batch);
      return proven !== undefined;
    });
    if (proven !== undefined) return proven;
  }
  if (path.signed !== undefined) return path.signed;
  throw new NotProvableError(
    `no signed head covers record ${seq} of ${folder}: try again a second later if audit.signingKeyFile is set, or run audit verify`,
  );
}

/** The first cosigned head over that record; undefined: there is none. */
async function cosignedHeadOver(
  folder: string,
  segments: readonly Segment[],
  seq: number,
): Promise<Checkpoint | undefined> {
  for (const { first } of segments) {
    for await (const head of cosignedHeads(folder, first)) {
      if (head.first <= seq && seq < head.first + head.size) return head;
    }
  }
  return undefined;
}

/** Follows the tree from the segment of a record on. */
class ProofPath {
  readonly #seq: number;
  /** The tree before the record; undefined: no segment with a tree was there yet. */
  #before: MerkleTree | undefined;
  #first = 0;
  #record: { readonly line: string; readonly after: LeafRange } | undefined;
  readonly #trees: TreeWalk;
  readonly #target: Checkpoint | undefined;
  #cosigned: ProvenRecord | undefined;
  /** The proof up to the first signed head; undefined: none came. */
  signed: ProvenRecord | undefined;

  /** `target`: the cosigned head to lead to. */
  constructor(replica: string, seq: number, target: Checkpoint | undefined) {
    this.#seq = seq;
    this.#target = target;
    this.#trees = new TreeWalk({ replica, keys: undefined, onLeaf: (leaf, line) => this.#add(leaf, line) });
  }

  /** Takes the next batch; returns the proof if the head that it leads to is there. */
  take(batch: WalkedBatch): ProvenRecord | undefined {
    if (batch.line === 1) this.#begin(batch.header && treeOf(batch.header));
    const { head } = this.#trees.take(batch);
    this.signed ??= head && this.#upTo(head.checkpoint);
    const size = this.#trees.tree?.tree.size ?? 0;
    const isPast = this.#target === undefined || size >= this.#target.size;
    return this.#cosigned ?? (isPast ? this.signed : undefined);
  }

  /** Takes the tree before the first segment. */
  #begin(tree: LogTree | undefined): void {
    if (tree === undefined || this.#before !== undefined) return;
    this.#before = tree.tree.copy();
    this.#first = tree.first;
  }

  #add(leaf: Digest, line: Buffer): void {
    if (this.#record !== undefined) this.#record.after.add(leaf);
    else if (this.#before !== undefined && this.#first + this.#before.size === this.#seq) {
      this.#record = { line: line.toString(), after: new LeafRange(this.#before.size + 1) };
    } else this.#before?.add(leaf);
    // A cosigned head of another log is not a head of this one.
    const { size, root } = this.#target ?? {};
    const tree = this.#trees.tree?.tree;
    if (this.#target !== undefined && size === tree?.size && root === tree?.root) {
      this.#cosigned ??= this.#upTo(this.#target);
    }
  }

  /** Undefined: the record is not under that head. */
  #upTo({ first, size, note }: Checkpoint): ProvenRecord | undefined {
    const [before, record] = [this.#before, this.#record];
    if (before === undefined || record?.after.end !== size) return undefined;
    if (first !== this.#first) return undefined;
    return { record: record.line, proof: proofText(before.size, inclusionProof(before, record.after), note) };
  }
}
