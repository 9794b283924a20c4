import { createHash } from 'node:crypto';
import { describe, expect, test } from '@jest/globals';
import {
  type Digest,
  inclusionProof,
  leafHash,
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
  test('leads to the root, for each leaf of each size, from each beginning', () => {
    for (let size = 1; size <= 40; size += 1) {
      const { root } = treeOf(leaves.slice(0, size));
      for (let index = 0; index < size; index += 1) {
        for (const from of new Set([0, index, index >> 1])) {
          const path = inclusionProof(index, size, treeOf(leaves.slice(0, from)), hashes.slice(from, size));
          expect(rootFromProof(hashes[index] ?? '', { index, size }, path)).toBe(root);
        }
      }
    }
  });

  test('leads elsewhere with another leaf, index, size or hash, and nowhere with more or fewer', () => {
    const [index, size] = [11, 23];
    const { root } = treeOf(leaves.slice(0, size));
    const path = inclusionProof(index, size, MerkleTree.empty(), hashes);
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

test('a digest has one spelling', () => {
  const text = Buffer.alloc(32, 7).toString('base64');
  expect(parseDigest(text)).toBe('\x07'.repeat(32));
  // The last character has two bits that stand for nothing.
  const spellings = [text.replace(/c=$/, 'd='), text.slice(0, -1), `${text} `, `${text}\n`, ''];
  expect(spellings.map(parseDigest)).toEqual(spellings.map(() => undefined));
});
