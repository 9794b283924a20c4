import { CHECKPOINT_START, type Checkpoint, checkpointIn } from '../checkpoint.ts';
import { consistencyProof, type Digest, LeafRange, leafHash, type MerkleTree } from '../merkle.ts';
import { type SealedBatch, SealedBatches } from '../reader/sealed-batches.ts';
import type { Archive } from '../segments/archive.ts';
import { segmentsIn } from '../segments/segment.ts';
import type { SinkPosition } from '../segments/signed-file.ts';
import { treeOf } from '../segments/tree-walk.ts';
import type { Source, Unit } from './follower.ts';
import { Rejected } from './receiver.ts';
import { recordsBehind } from './record-source.ts';

/** The newest signed head of a log, and the proof that it continues the tree that the witness has. */
export interface HeadSubmission {
  readonly folder: string;
  /** Number of the first record of the segment with the head. */
  readonly segment: number;
  /** The head as a checkpoint. */
  readonly note: string;
  readonly size: number;
  /** Size of the tree that the witness has, as far as is known. */
  readonly old: number;
  readonly proof: readonly Digest[];
}

/** The witness has a tree of another size than `old` of the submission. */
export class OtherSizeError extends Error {
  /** Number of leaves. */
  readonly size: number;

  constructor(size: number) {
    super(`the witness has cosigned ${size} records`);
    this.size = size;
  }
}

interface HeadSourceOptions extends Archive {
  /** The position of the last head that was cosigned; undefined: none was. */
  readonly start: SinkPosition | undefined;
  /** The least time between two submissions, in milliseconds. */
  readonly every: number;
  /**
   * True: each head needs a proof that it continues the last one, and the last head is sent before its time at the end.
   */
  readonly isWitnessed: boolean;
  /** When the last head was sent before the start, in Unix milliseconds; undefined: the first one is sent at once. */
  readonly lastSent?: number;
}

/** A tree at one size, and the leaves that follow. */
interface TreePoint {
  readonly tree: MerkleTree;
  readonly after: LeafRange;
}

/** A signed head with its tree, which is the beginning of the next proof. */
interface NewestHead extends TreePoint {
  readonly note: string;
  readonly position: SinkPosition;
  readonly segment: number;
  /** From the tree that the witness has; undefined: that was not read. */
  readonly proof: readonly Digest[] | undefined;
}

/**
 * Reads the newest signed head of one process's log, and makes its consistency proof on the way: of the leaves it keeps
 * the roots of full subtrees only, so memory does not grow with the log.
 */
export class HeadSource implements Source<HeadSubmission> {
  readonly #options: HeadSourceOptions;
  /** Undefined: the log is to be opened. */
  #batches: SealedBatches | undefined;
  /** True: a batch was left out, so that the tree is not that of the log. */
  #isForged = false;
  /** The tree of all records that were read; undefined: heads are not signed there. */
  #tree: MerkleTree | undefined;
  /** Number of the record that is leaf 0; 0: no segment was read. */
  #first = 0;
  /** Number of the first record of the present segment. */
  #segment = 0;
  /** Records up to that one are cosigned; 0: none is. */
  #cosignedSeq: number;
  /** The tree that the witness has; undefined: it was not read. */
  #base: TreePoint | undefined;
  #head: NewestHead | undefined;
  #sent: NewestHead | undefined;
  #sentAt = Number.NEGATIVE_INFINITY;
  /** When the first record that is not cosigned was written, in Unix milliseconds. */
  #since: number | undefined;
  /** When a head may be sent again, in Unix milliseconds. */
  #dueAt = 0;
  /** Sizes at which the log was read again, since a head did not fit it. */
  #doubted = -1;

  constructor(options: HeadSourceOptions) {
    this.#options = options;
    this.#cosignedSeq = options.start?.seq ?? 0;
    if (options.lastSent === undefined) return;
    // A time ahead of the clock must not keep the next head back for longer.
    const age = Math.max(0, Date.now() - options.lastSent);
    this.#sentAt = performance.now() - age;
    this.#dueAt = Date.now() - age + options.every;
  }

  async next(isLast = false): Promise<Unit<HeadSubmission> | undefined> {
    if (this.#sent !== undefined) this.#confirm(this.#sent);
    if (this.#isEarly && !(isLast && this.#options.isWitnessed)) return undefined;
    for (let batch = await this.#read(); batch !== undefined; batch = await this.#read()) this.#take(batch);
    const head = this.#head;
    if (head === undefined || head.tree.size === this.#cosignedSize) return undefined;
    const { note, position, segment, tree } = head;
    const { folder, isWitnessed } = this.#options;
    const old = this.#cosignedSize;
    // The witness says what it has when it is asked with another size.
    const [asked, proof] = !isWitnessed || tree.size < old ? [0, []] : [old, proofOf(head, old)];
    this.#sent = head;
    this.#sentAt = performance.now();
    const content = { folder, segment, note, size: tree.size, old: asked, proof };
    return {
      content,
      records: Math.max(1, tree.size - old),
      since: Math.max(this.#since ?? Date.now(), this.#dueAt),
      position,
    };
  }

  /** None in a log whose heads are not signed. */
  behind(): Promise<number> {
    const isUnsigned = this.#segment > 0 && this.#tree === undefined;
    // A file that is not due is sent with the next head.
    const isWaiting = this.#isEarly && !this.#options.isWitnessed;
    return isUnsigned || isWaiting
      ? Promise.resolve(0)
      : recordsBehind(this.#options.folder, { seq: this.#cosignedSeq });
  }

  /** The next unit has the newest head by then. */
  async returnToPosition(error: unknown): Promise<void> {
    this.#sent = undefined;
    this.#sentAt = Number.NEGATIVE_INFINITY;
    if (!(error instanceof OtherSizeError)) return;
    this.#cosignedSeq = error.size === 0 ? 0 : this.#first + error.size - 1;
    await this.#reopen();
  }

  async close(): Promise<void> {
    await this.#batches?.close();
  }

  get #isEarly(): boolean {
    return performance.now() - this.#sentAt < this.#options.every;
  }

  /** Records of the present tree that are cosigned. */
  get #cosignedSize(): number {
    return Math.max(0, this.#cosignedSeq - this.#first + 1);
  }

  /** Without a position no proof is needed: the newest head is in the newest segment, or ends the one before. */
  async #open(): Promise<SealedBatches> {
    const { folder, replica, keys } = this.#options;
    const onForged = (): void => {
      this.#isForged = true;
    };
    const newest = (await segmentsIn(folder)).at(-1)?.first ?? 1;
    return new SealedBatches({ folder, replica, keys: [keys], onForged }, this.#cosignedSeq || newest - 1);
  }

  async #reopen(): Promise<void> {
    await this.#batches?.close();
    this.#batches = undefined;
    [this.#isForged, this.#segment, this.#first] = [false, 0, 0];
    [this.#tree, this.#base, this.#head, this.#since] = [undefined, undefined, undefined, undefined];
  }

  async #read(): Promise<SealedBatch | undefined> {
    this.#batches ??= await this.#open();
    const batch = await this.#batches.next();
    if (!this.#isForged) return batch;
    return this.#readAgain('a batch of the log does not match its seal');
  }

  /** A file that is cut while it is read looks altered once. */
  async #readAgain(reason: string): Promise<undefined> {
    const size = this.#tree?.size ?? 0;
    const isSecond = this.#doubted === size;
    this.#doubted = size;
    // If the log goes on with another tree, that can be cosigned.
    if (isSecond) this.#cosignedSeq = 0;
    await this.#reopen();
    throw new Error(isSecond ? `${reason}: run audit verify` : `${reason}; it is read again`);
  }

  #confirm(head: NewestHead): void {
    this.#cosignedSeq = this.#first + head.tree.size - 1;
    this.#base = head;
    this.#sent = undefined;
    this.#dueAt = Date.now() + this.#options.every;
    this.#doubted = -1;
    this.#since = undefined;
  }

  #take({ header, records, lines, seal }: SealedBatch): void {
    if (header.first !== this.#segment) this.#begin(header);
    const tree = this.#tree;
    if (tree === undefined) return;
    for (const { seq, line, time } of records) {
      // The writer writes a batch again that it took back after a failure of the disk.
      if (seq < this.#first + tree.size) continue;
      const bytes = Buffer.from(line);
      this.#add(tree, leafHash(bytes, 0, bytes.length), time);
    }
    const checkpoint = headIn(lines);
    if (checkpoint?.size !== tree.size || checkpoint.first !== this.#first) return;
    if (checkpoint.root !== tree.root) {
      this.#isForged = true;
      return;
    }
    const position = { seq: seal.last, hmac: seal.hmac };
    const after = new LeafRange(tree.size);
    const proof = this.#proof();
    this.#head = { tree: tree.copy(), after, note: checkpoint.note, position, segment: this.#segment, proof };
  }

  /** The proof up to the present tree. */
  #proof(): Digest[] | undefined {
    if (this.#cosignedSize === 0) return [];
    return this.#base && consistencyProof(this.#base.tree, this.#base.after);
  }

  #begin(header: SealedBatch['header']): void {
    this.#segment = header.first;
    const next = treeOf(header);
    const continues = next?.first === this.#first && this.#tree !== undefined;
    if (continues && next.tree.size <= (this.#tree?.size ?? 0)) return;
    [this.#base, this.#head, this.#since] = [undefined, undefined, undefined];
    this.#tree = next?.tree;
    this.#first = next?.first ?? 0;
    // A tree that begins after the cosigned records is another one, of which nothing is cosigned.
    if (this.#first > this.#cosignedSeq) this.#cosignedSeq = 0;
    if (this.#tree !== undefined) this.#setBase(this.#tree);
  }

  #add(tree: MerkleTree, leaf: Digest, time: string): void {
    if (tree.size >= this.#cosignedSize) this.#since ??= Date.parse(time) || Date.now();
    tree.add(leaf);
    this.#base?.after.add(leaf);
    if (this.#head !== this.#base) this.#head?.after.add(leaf);
    this.#setBase(tree);
  }

  /** Remembers the tree when it has the size that the witness has. */
  #setBase(tree: MerkleTree): void {
    if (tree.size === this.#cosignedSize) {
      this.#base = { tree: tree.copy(), after: new LeafRange(tree.size) };
    }
  }
}

/** @throws Rejected if there is no proof */
function proofOf({ proof }: NewestHead, old: number): readonly Digest[] {
  if (proof !== undefined) return proof;
  const reason = `the witness has cosigned ${old} records, and the log no longer has what followed`;
  throw new Rejected(`${reason}: nothing shows that it continues them`);
}

/** The signed head in the lines of a batch; undefined: there is none. */
function headIn(lines: string): Checkpoint | undefined {
  const start = lines.lastIndexOf(`\n${CHECKPOINT_START}`) + 1;
  if (start === 0 && !lines.startsWith(CHECKPOINT_START)) return undefined;
  return checkpointIn(lines.slice(start, lines.indexOf('\n', start)));
}
