import type { Signed } from '../audit.ts';
import { checkpointLine, type SigningKey, signCheckpoint } from '../checkpoint.ts';
import { NEWLINE } from '../line.ts';
import { type Digest, leafHash, type MerkleTree } from '../merkle.ts';
import type { LogTree } from '../segments/tree-walk.ts';

/** How long records are under no signed head at most while the log can be written, in milliseconds. */
const EVERY_MS = 1000;
/** Leaves that wait for the hashes above them: many are hashed in less time than a few, and a head alone needs them. */
const MAX_WAITING = 512;

/** A signed head on its way into the file. */
export interface NewHead {
  readonly size: number;
  readonly note: string;
  /** Its line in the segment. */
  readonly line: string;
}

/** What a batch does to the tree, once it is in the file. */
export interface Growth {
  readonly leaves: readonly Digest[];
  /** The tree with these leaves; undefined: they wait. */
  readonly tree: MerkleTree | undefined;
  readonly head: NewHead | undefined;
}

/** The tree of the log that is being written. It grows when a batch is in the file, since that may fail. */
export class SignedTree {
  readonly #key: SigningKey;
  readonly #replica: string;
  readonly #first: number;
  /** Without the leaves that wait. */
  #tree: MerkleTree;
  #waiting: Digest[] = [];
  /** Records under the last head that this process signed; heads of an earlier process do not count. */
  #signedSize = 0;
  #signedAt = Number.NEGATIVE_INFINITY;
  #signed: Signed = { checkpoint: undefined, unsignedSince: undefined };

  constructor(key: SigningKey, replica: string, { first, tree }: LogTree) {
    this.#key = key;
    this.#replica = replica;
    this.#first = first;
    this.#tree = tree;
  }

  /** The tree of the records that are in the file. */
  get logTree(): LogTree {
    this.#tree.addAll(this.#waiting);
    this.#waiting = [];
    return { first: this.#first, tree: this.#tree };
  }

  get signed(): Signed {
    return this.#signed;
  }

  /** True if records have waited long enough for a signed head. */
  get isDue(): boolean {
    return this.#isDue(this.#size);
  }

  /** The number of the record that follows those in the file. */
  get next(): number {
    return this.#first + this.#size;
  }

  /** Hashes the records of a batch, and signs their head if it is time. */
  grown(lines: Buffer): Growth {
    const leaves: Digest[] = [];
    // A generator would cost a tenth of the hashes.
    for (let start = 0; start < lines.length; ) {
      const end = lines.indexOf(NEWLINE, start);
      leaves.push(leafHash(lines, start, end));
      start = end + 1;
    }
    const isDue = this.#isDue(this.#size + leaves.length);
    if (!isDue && this.#waiting.length + leaves.length < MAX_WAITING) {
      return { leaves, tree: undefined, head: undefined };
    }
    const tree = this.#tree.copy();
    tree.addAll([...this.#waiting, ...leaves]);
    return { leaves, tree, head: isDue ? this.#sign(tree) : undefined };
  }

  /** Signs the present head; undefined: that was done. */
  lastHead(): NewHead | undefined {
    return this.#size > this.#signedSize ? this.#sign(this.logTree.tree) : undefined;
  }

  /** Takes over a batch that is in the file, with the signed head that followed it. */
  commit({ leaves, tree, head }: Growth): void {
    if (tree === undefined) {
      for (const leaf of leaves) this.#waiting.push(leaf);
    } else {
      this.#tree = tree;
      this.#waiting = [];
    }
    if (head !== undefined) this.signedBy(head);
    else if (this.#signed.unsignedSince === undefined && this.#size > this.#signedSize) {
      this.#signed = { ...this.#signed, unsignedSince: performance.now() };
    }
  }

  /** Takes over a signed head that is in the file. */
  signedBy(head: NewHead): void {
    this.#signedSize = head.size;
    this.#signedAt = performance.now();
    this.#signed = { checkpoint: head.note, unsignedSince: undefined };
  }

  /** Records that are in the file. */
  get #size(): number {
    return this.#tree.size + this.#waiting.length;
  }

  #isDue(size: number): boolean {
    return size > this.#signedSize && performance.now() - this.#signedAt >= EVERY_MS;
  }

  #sign(tree: MerkleTree): NewHead {
    const { size, root } = tree;
    const note = signCheckpoint(this.#key, { replica: this.#replica, first: this.#first, size, root });
    return { size, note, line: checkpointLine(note) };
  }
}
