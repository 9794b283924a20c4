import { createHash } from 'node:crypto';
import { describe, expect, test } from '@jest/globals';
import {
  consistencyProof,
  type Digest,
  inclusionProof,
  isConsistent,
  LeafRange,
  leafHash,
  MAX_CONSISTENCY_PROOF,
  MerkleTree,
  parseDigest,
  rootFromProof,
} from '../../src/audit/merkle.ts';

/** The leaves and roots that implementations of Certificate Transparency are tested with, from 1 to 8 leaves. */
const LEAVES = [
  '',
  '00',
  '10',
  '2021',
  '3031',
  '40414243',
  '5051525354555657',
  '606162636465666768696a6b6c6d6e6f',
];
const ROOTS = [
  '6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d',
  'fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125',
  'aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77',
  'd37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7',
  '4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4',
  '76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef',
  'ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c',
  '5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328',
];

function hex(digest: Digest): string {
  return Buffer.from(digest, 'latin1').toString('hex');
}

/** The tree hash as RFC 6962, section 2.1, defines it. */
function treeHash(leaves: readonly Buffer[]): Buffer {
  const sha256 = (...parts: Buffer[]): Buffer => createHash('sha256').update(Buffer.concat(parts)).digest();
  const [first] = leaves;
  if (first === undefined) return sha256();
  if (leaves.length === 1) return sha256(Buffer.of(0), first);
  let split = 1;
  while (split * 2 < leaves.length) split *= 2;
  return sha256(Buffer.of(1), treeHash(leaves.slice(0, split)), treeHash(leaves.slice(split)));
}

function treeOf(leaves: readonly Buffer[]): MerkleTree {
  const tree = MerkleTree.empty();
  for (const leaf of leaves) tree.add(leafHash(leaf, 0, leaf.length));
  return tree;
}

function rangeOf(begin: number, end: number): LeafRange {
  const range = new LeafRange(begin);
  for (const leaf of hashes.slice(begin, end)) range.add(leaf);
  return range;
}

const leaves = Array.from({ length: 70 }, (_, index) => Buffer.from(`record ${index}`));
const hashes = leaves.map((leaf) => leafHash(leaf, 0, leaf.length));

test('has the roots of Certificate Transparency', () => {
  const roots = ROOTS.map((_, index) =>
    hex(treeOf(LEAVES.slice(0, index + 1).map((leaf) => Buffer.from(leaf, 'hex'))).root),
  );
  expect(roots).toEqual(ROOTS);
});

test('has the root of the RFC at each size, in parts and as a whole', () => {
  for (let size = 0; size <= leaves.length; size += 1) {
    const tree = treeOf(leaves.slice(0, size));
    expect([size, hex(tree.root)]).toEqual([size, treeHash(leaves.slice(0, size)).toString('hex')]);
    const continued = MerkleTree.of(size, tree.roots);
    for (const leaf of hashes.slice(size)) continued?.add(leaf);
    expect(hex(continued?.root ?? '')).toBe(treeHash(leaves).toString('hex'));
  }
});

test('does not take other subtrees than its size has', () => {
  const { roots } = treeOf(leaves.slice(0, 6));
  expect([5, 6, 7, 8].map((size) => MerkleTree.of(size, roots)?.size)).toEqual([5, 6, undefined, undefined]);
});

test('hashes a line in the middle of others, and leaves them as they are', () => {
  const bytes = Buffer.from('first\nsecond\n');
  expect(leafHash(bytes, 6, 12)).toBe(leafHash(Buffer.from('second'), 0, 6));
  expect(bytes.toString()).toBe('first\nsecond\n');
});

describe('a proof of inclusion', () => {
  test('leads to the root, for each leaf of each size', () => {
    for (let size = 1; size <= 40; size += 1) {
      const { root } = treeOf(leaves.slice(0, size));
      for (let index = 0; index < size; index += 1) {
        const path = inclusionProof(treeOf(leaves.slice(0, index)), rangeOf(index + 1, size));
        expect(rootFromProof(hashes[index] ?? '', { index, size }, path)).toBe(root);
      }
    }
  });

  test('leads elsewhere with another leaf, index, size or hash, and nowhere with more or fewer', () => {
    const [index, size] = [11, 23];
    const { root } = treeOf(leaves.slice(0, size));
    const path = inclusionProof(treeOf(leaves.slice(0, index)), rangeOf(index + 1, size));
    const leaf = hashes[index] ?? '';
    expect(rootFromProof(leaf, { index, size }, path)).toBe(root);
    expect(rootFromProof(hashes[0] ?? '', { index, size }, path)).not.toBe(root);
    for (let other = 0; other < 30; other += 1) {
      if (other !== index) expect(rootFromProof(leaf, { index: other, size }, path)).not.toBe(root);
    }
    for (let at = 0; at < path.length; at += 1) {
      expect(rootFromProof(leaf, { index, size }, path.with(at, leaf))).not.toBe(root);
      expect(rootFromProof(leaf, { index, size }, path.toSpliced(at, 1))).not.toBe(root);
    }
    expect(rootFromProof(leaf, { index, size }, [...path, leaf])).toBeUndefined();
    expect(rootFromProof(leaf, { index, size: index }, path)).toBeUndefined();
  });
});

/** The consistency proof as RFC 6962, section 2.1.2, defines it: PROOF(m, D[n]). */
function proofOf(size: number, range: readonly Buffer[], isWhole = true): Buffer[] {
  if (size === range.length) return isWhole ? [] : [treeHash(range)];
  let split = 1;
  while (split * 2 < range.length) split *= 2;
  const [left, right] = [range.slice(0, split), range.slice(split)];
  return size <= split
    ? [...proofOf(size, left, isWhole), treeHash(right)]
    : [...proofOf(size - split, right, false), treeHash(left)];
}

describe('a proof of consistency', () => {
  test('is that of the RFC, for each pair of sizes, and accepted', () => {
    for (let size = 1; size <= 40; size += 1) {
      const after = { size, root: treeOf(leaves.slice(0, size)).root };
      for (let old = 1; old <= size; old += 1) {
        const before = treeOf(leaves.slice(0, old));
        const proof = consistencyProof(before, rangeOf(old, size));
        expect(proof.map(hex)).toEqual(
          proofOf(old, leaves.slice(0, size)).map((each) => each.toString('hex')),
        );
        expect([old, size, isConsistent(before, after, proof)]).toEqual([old, size, true]);
      }
      expect(
        isConsistent(MerkleTree.empty(), after, consistencyProof(MerkleTree.empty(), rangeOf(0, size))),
      ).toBe(true);
    }
  });

  test('is refused with another hash, size or root, and with more or fewer hashes', () => {
    for (const [old, size] of [
      [1, 2],
      [6, 7],
      [8, 23],
      [11, 23],
      [16, 16],
      [22, 70],
    ] as const) {
      const [before, after] = [treeOf(leaves.slice(0, old)), treeOf(leaves.slice(0, size))];
      const proof = consistencyProof(before, rangeOf(old, size));
      const [leaf = ''] = hashes;
      const other = { size: old, root: treeOf([...leaves.slice(1, old), Buffer.from('x')]).root };
      expect(isConsistent(other, after, proof)).toBe(false);
      expect(isConsistent(before, { size, root: leaf.replace(/^./s, '!') }, proof)).toBe(false);
      expect(isConsistent(before, after, [...proof, leaf])).toBe(false);
      expect(isConsistent(after, before, proof)).toBe(old === size);
      for (let at = 0; at < proof.length; at += 1) {
        expect(isConsistent(before, after, proof.with(at, '!'.repeat(32)))).toBe(false);
        expect(isConsistent(before, after, proof.toSpliced(at, 1))).toBe(false);
      }
      for (let wrong = 1; wrong < old; wrong += 1) {
        expect(isConsistent({ size: wrong, root: before.root }, after, proof)).toBe(false);
      }
    }
    expect(isConsistent(MerkleTree.empty(), { size: 1, root: hashes[0] ?? '' }, [hashes[0] ?? ''])).toBe(
      false,
    );
  });

  test('has no more hashes than the protocol of witnesses lets through, however large the log', () => {
    const size = 2 ** 50 - 1;
    const roots = Array.from({ length: 50 }, (_, index) => hashes[index] ?? '');
    const before = MerkleTree.of(size, roots);
    const range = new LeafRange(size);
    for (const leaf of hashes.slice(0, 3)) range.add(leaf);
    const proof = consistencyProof(before ?? MerkleTree.empty(), range);
    expect(proof.length).toBeLessThanOrEqual(MAX_CONSISTENCY_PROOF);
    const after = before?.copy() ?? MerkleTree.empty();
    for (const leaf of hashes.slice(0, 3)) after.add(leaf);
    expect(isConsistent(before ?? MerkleTree.empty(), after, proof)).toBe(true);
  });

  test('needs the leaves behind the old tree', () => {
    expect(() => consistencyProof(treeOf(leaves.slice(0, 5)), rangeOf(6, 9))).toThrow(
      'leaf 5 is in no subtree',
    );
  });
});

test('a digest has one spelling', () => {
  const text = Buffer.alloc(32, 7).toString('base64');
  expect(parseDigest(text)).toBe('\x07'.repeat(32));
  // The last character has two bits that stand for nothing.
  const spellings = [text.replace(/c=$/, 'd='), text.slice(0, -1), `${text} `, `${text}\n`, ''];
  expect(spellings.map(parseDigest)).toEqual(spellings.map(() => undefined));
});
