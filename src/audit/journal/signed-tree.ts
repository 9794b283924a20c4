import type { Signed } from '../audit.ts';
import { type SigningKey, signCheckpoint } from '../checkpoint.ts';
import { headOf as lineHeadOf } from '../line.ts';
import type { Digest, MerkleTree } from '../merkle.ts';
import type { LogTree } from '../segments/tree-walk.ts';

/** How long records are under no signed head at most while the log can be written, in milliseconds. */
const EVERY_MS = 1000;

/** The tree of the log that is being written. It grows when a batch is in the file, since that may fail. */
export class SignedTree {
  readonly #key: SigningKey;
  readonly #replica: string;
  readonly #first: number;
  #tree: MerkleTree;
  /** Records under the last head that this process signed, or that it found: it signs none without one of its own. */
  #signedSize: number;
  #signedAt = Number.NEGATIVE_INFINITY;
  /** The earliest and the latest time of the records under no head, in Unix milliseconds. */
  #earliest = Number.POSITIVE_INFINITY;
  #latest = Number.NEGATIVE_INFINITY;
  /** Number of a record whose batch ends with a head, whenever the last one was signed. */
  #wanted = Number.POSITIVE_INFINITY;
  #signed: Signed = { checkpoint: undefined, unsignedSince: undefined };

  constructor(key: SigningKey, replica: string, { first, tree }: LogTree) {
    this.#key = key;
    this.#replica = replica;
    this.#first = first;
    this.#tree = tree;
    this.#signedSize = tree.size;
  }

  /** The tree of the records that are in the file. */
  get logTree(): LogTree {
    return { first: this.#first, tree: this.#tree };
  }

  get signed(): Signed {
    return this.#signed;
  }

  /** True if records have waited long enough for a signed head. */
  get isDue(): boolean {
    return this.#isDue(this.#tree);
  }

  /** Has the batch with that record, which is not written yet, end with a head. */
  signWith(seq: number): void {
    this.#wanted = seq;
  }

  /** A tree with further records. `from` undefined: that of the records that are in the file. */
  extended(leaves: readonly Digest[], from = this.#tree): MerkleTree {
    const tree = from.copy();
    for (const leaf of leaves) tree.add(leaf);
    return tree;
  }

  /**
   * Signs the head of a tree, if it is time, and returns the checkpoint; undefined: it is not. `bytes` and `ends` are its
   * newest records and where each of them ends.
   */
  headOf(tree: MerkleTree, bytes: Buffer, ends: readonly number[]): string | undefined {
    for (const start of ends.length === 0 ? [] : [0, (ends.at(-2) ?? -1) + 1]) {
      const time = Date.parse(lineHeadOf(bytes, start)?.time ?? '');
      this.#earliest = Math.min(this.#earliest, time);
      this.#latest = Math.max(this.#latest, time);
    }
    return this.#isDue(tree) ? this.#sign(tree) : undefined;
  }

  /** Signs the present head, and returns the checkpoint; undefined: that was done. */
  lastHead(): string | undefined {
    return this.#tree.size > this.#signedSize ? this.#sign(this.#tree) : undefined;
  }

  /** Takes over a tree whose records are in the file. `checkpoint`: that of its head, if it is in the file, too. */
  commit(tree: MerkleTree, checkpoint: string | undefined): void {
    this.#tree = tree;
    const now = performance.now();
    if (checkpoint !== undefined) {
      this.#signedSize = tree.size;
      this.#signedAt = now;
      this.#earliest = Number.POSITIVE_INFINITY;
      this.#latest = Number.NEGATIVE_INFINITY;
      // The head may be of a batch that was under way when the record was added.
      if (this.#hasWanted(tree)) this.#wanted = Number.POSITIVE_INFINITY;
      this.#signed = { checkpoint, unsignedSince: undefined };
    } else if (this.#signed.unsignedSince === undefined && tree.size > this.#signedSize) {
      this.#signed = { ...this.#signed, unsignedSince: now };
    }
  }

  #isDue(tree: MerkleTree): boolean {
    // A clock that was set: records under no head whose times span more than a minute count as forged.
    const elapsed = Math.max(performance.now() - this.#signedAt, this.#latest - this.#earliest);
    return tree.size > this.#signedSize && (this.#hasWanted(tree) || elapsed >= EVERY_MS);
  }

  #hasWanted(tree: MerkleTree): boolean {
    return this.#first + tree.size > this.#wanted;
  }

  #sign({ size, root }: MerkleTree): string {
    return signCheckpoint(this.#key, { replica: this.#replica, first: this.#first, size, root });
  }
}
