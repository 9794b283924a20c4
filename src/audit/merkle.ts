import { hash } from 'node:crypto';
import { lineEnds } from './line.ts';

/*
 * The Merkle tree of RFC 6962, section 2.1 (RFC 9162 has the same), over the lines of records. A leaf is one record and
 * not one batch: the proof of a leaf has its data, and a batch has records of several clients.
 */

/** SHA-256 as 32 characters, one for each byte: Node.js makes it in half the time of a buffer. */
export type Digest = string;

const DIGEST_BYTES = 32;
/** Without a length, `hash` looks each time whether the algorithm needs one: a seventh of the hash of a node. */
const AS_DIGEST = { outputEncoding: 'latin1', outputLength: DIGEST_BYTES } as const;
const LEAF = 0;
const NODE = 1;
const pair = Buffer.alloc(1 + 2 * DIGEST_BYTES);
pair[0] = NODE;
const LEAF_PREFIX = Buffer.of(LEAF);
/** Most subtrees of a tree: one for each bit of its size. */
const MOST_ROOTS = 53;

/** The hash of an inner node. */
function nodeHash(left: Digest, right: Digest): Digest {
  pair.write(left, 1, 'latin1');
  pair.write(right, 1 + DIGEST_BYTES, 'latin1');
  return hash('sha256', pair, AS_DIGEST);
}

/** The hash of the leaf that is the bytes from `start` to `end`. */
export function leafHash(bytes: Buffer, start: number, end: number): Digest {
  if (start === 0) return hash('sha256', Buffer.concat([LEAF_PREFIX, bytes.subarray(0, end)]), AS_DIGEST);
  // A copy of each line would cost a tenth of its hash: the byte before it gives way for a moment.
  const before = bytes[start - 1] ?? 0;
  bytes[start - 1] = LEAF;
  const digest = hash('sha256', bytes.subarray(start - 1, end), AS_DIGEST);
  bytes[start - 1] = before;
  return digest;
}

/** The leaf hash of each of these whole lines, without its line end. */
export function leavesOf(lines: Buffer, ends: readonly number[] = lineEnds(lines)): Digest[] {
  const leaves: Digest[] = [];
  let start = 0;
  for (const end of ends) {
    leaves.push(leafHash(lines, start, end));
    start = end + 1;
  }
  return leaves;
}

/** A subtree with a power of two leaves, from leaf `from` on. */
interface Subtree {
  readonly from: number;
  readonly size: number;
  readonly root: Digest;
}

/** A tree that grows at its end. It keeps the roots of its largest full subtrees only, one for each bit of its size. */
export class MerkleTree {
  #size: number;
  readonly #roots: Digest[];

  private constructor(size: number, roots: Digest[]) {
    this.#size = size;
    this.#roots = roots;
  }

  static empty(): MerkleTree {
    return new MerkleTree(0, []);
  }

  /** The tree with these roots, the largest subtree first; undefined: a tree of that size has others. */
  static of(size: number, roots: readonly Digest[]): MerkleTree | undefined {
    return roots.length === subtreesOf(size).length ? new MerkleTree(size, [...roots]) : undefined;
  }

  /** Number of leaves. */
  get size(): number {
    return this.#size;
  }

  /** The roots of its full subtrees, the largest first. */
  get roots(): readonly Digest[] {
    return this.#roots;
  }

  get subtrees(): Subtree[] {
    return subtreesOf(this.#size).map((each, index) => ({ ...each, root: this.#roots[index] ?? '' }));
  }

  get root(): Digest {
    const last = this.#roots.at(-1);
    if (last === undefined) return hash('sha256', '', AS_DIGEST);
    let root = last;
    for (let at = this.#roots.length - 2; at >= 0; at -= 1) root = nodeHash(this.#roots[at] ?? '', root);
    return root;
  }

  add(leaf: Digest): void {
    let node = leaf;
    // Numbers of records are too large for bit operators.
    for (let size = this.#size; size % 2 === 1; size = (size - 1) / 2) {
      node = nodeHash(this.#roots.pop() ?? '', node);
    }
    this.#roots.push(node);
    this.#size += 1;
  }

  copy(): MerkleTree {
    return new MerkleTree(this.#size, [...this.#roots]);
  }

  equals(other: MerkleTree): boolean {
    return this.#size === other.size && this.#roots.join('') === other.roots.join('');
  }
}

/** The largest full subtrees of a tree, the largest first. */
function subtreesOf(size: number): { readonly from: number; readonly size: number }[] {
  const found: { from: number; size: number }[] = [];
  let from = 0;
  for (let bit = MOST_ROOTS - 1; bit >= 0; bit -= 1) {
    const part = 2 ** bit;
    if (size - from < part) continue;
    found.push({ from, size: part });
    from += part;
  }
  return found;
}

/** The leaves from `begin` on, which continue a tree. Like that, it keeps the roots of its largest full subtrees only. */
export class LeafRange {
  readonly begin: number;
  #end: number;
  readonly #subtrees: Subtree[] = [];

  constructor(begin: number) {
    this.begin = begin;
    this.#end = begin;
  }

  /** The number of the leaf after the last one. */
  get end(): number {
    return this.#end;
  }

  get subtrees(): readonly Subtree[] {
    return this.#subtrees;
  }

  add(leaf: Digest): void {
    let last: Subtree = { from: this.#end, size: 1, root: leaf };
    for (let before = this.#subtrees.at(-1); before?.size === last.size; before = this.#subtrees.at(-1)) {
      if (before.from % (2 * last.size) !== 0) break;
      this.#subtrees.pop();
      last = { from: before.from, size: 2 * last.size, root: nodeHash(before.root, last.root) };
    }
    this.#subtrees.push(last);
    this.#end += 1;
  }
}

/** Returns the root of the leaves from one number to another, which have to consist of these subtrees. */
function rootsFrom(subtrees: readonly Subtree[]): (from: number, to: number) => Digest {
  const known = new Map(subtrees.map((each) => [`${each.from} ${each.size}`, each.root]));
  const rootOf = (from: number, to: number): Digest => {
    const root = known.get(`${from} ${to - from}`);
    if (root !== undefined) return root;
    if (to - from <= 1) throw new RangeError(`leaf ${from} is in no subtree`);
    const middle = from + splitOf(to - from);
    return nodeHash(rootOf(from, middle), rootOf(middle, to));
  };
  return rootOf;
}

/**
 * The inclusion proof of RFC 6962, section 2.1.1, from the sibling of the leaf up: of the leaf between `before` and
 * `after`, in the tree that ends with `after`.
 */
export function inclusionProof(before: MerkleTree, after: LeafRange): Digest[] {
  const rootOf = rootsFrom([...before.subtrees, ...after.subtrees]);
  const index = before.size;
  const proof: Digest[] = [];
  let [from, to] = [0, after.end];
  while (to - from > 1) {
    const middle = from + splitOf(to - from);
    proof.push(index < middle ? rootOf(middle, to) : rootOf(from, middle));
    if (index < middle) to = middle;
    else from = middle;
  }
  return proof.reverse();
}

/** The consistency proof of RFC 6962, section 2.1.2, from `before` to the tree that ends with `after`. */
export function consistencyProof(before: MerkleTree, after: LeafRange): Digest[] {
  const rootOf = rootsFrom([...before.subtrees, ...after.subtrees]);
  const { size } = before;
  if (size === 0) return [];
  const proof: Digest[] = [];
  let [from, to] = [0, after.end];
  while (to > size) {
    const middle = from + splitOf(to - from);
    proof.push(size <= middle ? rootOf(middle, to) : rootOf(from, middle));
    if (size <= middle) to = middle;
    else from = middle;
  }
  // The verifier has the root of the old tree; otherwise it needs that of its last subtree to begin with.
  if (from > 0) proof.push(rootOf(from, to));
  return proof.reverse();
}

/** Most hashes of a consistency proof. */
export const MAX_CONSISTENCY_PROOF = 63;

/** A size of a tree with its root. */
interface SizedRoot {
  readonly size: number;
  readonly root: Digest;
}

/** True if the proof shows that the old tree is the beginning of the new one (RFC 9162, section 2.1.4.2). */
export function isConsistent(before: SizedRoot, after: SizedRoot, proof: readonly Digest[]): boolean {
  if (before.size === 0) return proof.length === 0;
  if (before.size === after.size) return proof.length === 0 && before.root === after.root;
  if (before.size > after.size) return false;
  const [start, ...path] = isPowerOfTwo(before.size) ? [before.root, ...proof] : proof;
  if (start === undefined) return false;
  let [node, last] = [before.size - 1, after.size - 1];
  while (node % 2 === 1) [node, last] = [(node - 1) / 2, Math.floor(last / 2)];
  const sides = sidesOf(node, last, path.length);
  if (sides === undefined) return false;
  let [old, root] = [start, start];
  for (const [at, sibling] of path.entries()) {
    if (sides[at] === 'left') old = nodeHash(sibling, old);
    root = joined(root, sibling, sides[at]);
  }
  return old === before.root && root === after.root;
}

function isPowerOfTwo(size: number): boolean {
  // The logarithm of a large number is rounded.
  return splitOf(size) * 2 === size || size === 1;
}

type Side = 'left' | 'right';

/**
 * The side of each hash of a path from a node up to the root (RFC 9162, section 2.1.3.2). `last`: the number of the last
 * node beside it. Undefined: a path there has another length.
 */
function sidesOf(from: number, end: number, length: number): Side[] | undefined {
  const sides: Side[] = [];
  let [node, last] = [from, end];
  while (sides.length < length && last > 0) {
    const isLeft = node % 2 === 1 || node === last;
    sides.push(isLeft ? 'left' : 'right');
    while (isLeft && node % 2 === 0 && node > 0) [node, last] = [node / 2, Math.floor(last / 2)];
    [node, last] = [Math.floor(node / 2), Math.floor(last / 2)];
  }
  return last === 0 && sides.length === length ? sides : undefined;
}

function joined(root: Digest, sibling: Digest, side: Side | undefined): Digest {
  return side === 'left' ? nodeHash(sibling, root) : nodeHash(root, sibling);
}

/** The largest power of two below `size`. */
function splitOf(size: number): number {
  let split = 1;
  while (split * 2 < size) split *= 2;
  return split;
}

/**
 * The root that follows from a leaf and its proof (RFC 9162, section 2.1.3.2); undefined: no tree of that size has such
 * a proof.
 */
export function rootFromProof(
  leaf: Digest,
  { index, size }: { readonly index: number; readonly size: number },
  proof: readonly Digest[],
): Digest | undefined {
  const sides = index < size ? sidesOf(index, size - 1, proof.length) : undefined;
  return sides && proof.reduce((root, sibling, at) => joined(root, sibling, sides[at]), leaf);
}

/** A digest in standard base64, as checkpoints and proofs have it. */
export function digestText(digest: Digest): string {
  return Buffer.from(digest, 'latin1').toString('base64');
}

/** Reads lines with a digest each; undefined: one is none. */
export function parseDigests(lines: string): Digest[] | undefined {
  const digests = lines.split('\n').slice(0, -1).map(parseDigest);
  return digests.every((each) => each !== undefined) ? digests : undefined;
}

/** The inverse of `digestText`; undefined: the text is not a digest in that spelling. */
export function parseDigest(text: string): Digest | undefined {
  const bytes = Buffer.from(text, 'base64');
  return bytes.length === DIGEST_BYTES && bytes.toString('base64') === text
    ? bytes.toString('latin1')
    : undefined;
}
