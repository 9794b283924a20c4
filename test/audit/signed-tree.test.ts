import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { parseCheckpoint } from '../../src/audit/checkpoint.ts';
import { SignedTree } from '../../src/audit/journal/signed-tree.ts';
import { lineEnds } from '../../src/audit/line.ts';
import { leavesOf, MerkleTree } from '../../src/audit/merkle.ts';
import { REPLICA } from '../support/audit-log.ts';
import { newSigningKey } from '../support/signing-key.ts';

const key = newSigningKey();
const EVERY_MS = 1_000;

beforeEach(() => {
  jest.useFakeTimers();
});
afterEach(() => {
  jest.useRealTimers();
});

/** A tree whose first record has the number 7, after so many records of an earlier process. */
function treeAfter(records = 0) {
  const tree = MerkleTree.empty();
  for (const leaf of leavesOf(Buffer.from('earlier\n'.repeat(records)))) tree.add(leaf);
  const signed = new SignedTree(key, REPLICA, { first: 7, tree });
  /** So many records come into the file; returns the number of those under the head that followed them. */
  const write = (count: number, ...at: number[]): number | undefined => {
    const extended = signed.extended(leavesOf(Buffer.from('record\n'.repeat(count))));
    const checkpoint = headOf(extended, ...at);
    signed.commit(extended, checkpoint);
    return parseCheckpoint(checkpoint ?? '')?.size;
  };
  /** The head of a tree whose newest records have these times. */
  const headOf = (tree: MerkleTree, ...at: number[]): string | undefined => {
    const records = at.map((ms) => `{"seq":1,"time":"${new Date(ms).toISOString()}","kind":"access"}\n`);
    const bytes = Buffer.from(records.join(''));
    return signed.headOf(tree, bytes, lineEnds(bytes));
  };
  const pass = (ms: number): void => {
    jest.advanceTimersByTime(ms);
  };
  return { signed, write, headOf, pass };
}

test('a tree without records has nothing to sign', () => {
  const { signed, write, pass } = treeAfter();
  const nothing = { checkpoint: undefined, unsignedSince: undefined };
  expect([signed.isDue, signed.lastHead(), signed.signed]).toEqual([false, undefined, nothing]);
  pass(EVERY_MS);
  expect([signed.isDue, write(0), signed.signed]).toEqual([false, undefined, nothing]);
});

test('the first records are signed at once, with the tree of those before them, which is not signed alone', () => {
  const { signed, write, pass } = treeAfter(3);
  pass(EVERY_MS);
  expect([signed.isDue, write(0), signed.lastHead()]).toEqual([false, undefined, undefined]);
  expect(write(2)).toBe(5);
  const { first, tree } = signed.logTree;
  expect([first, tree.size]).toEqual([7, 5]);
  const checkpoint = parseCheckpoint(signed.signed.checkpoint ?? '');
  expect(checkpoint).toMatchObject({ replica: REPLICA, first: 7, size: 5, root: tree.root });
});

test('further records are signed a second after the last head, and it is known since when they wait', () => {
  const { signed, write, pass } = treeAfter();
  write(1);
  const { checkpoint } = signed.signed;
  pass(EVERY_MS - 2);
  expect([write(0), signed.signed.unsignedSince]).toEqual([undefined, undefined]);
  const since = performance.now();
  expect(write(2)).toBeUndefined();
  pass(1);
  expect(write(1)).toBeUndefined();
  expect([signed.isDue, signed.signed]).toEqual([false, { checkpoint, unsignedSince: since }]);
  pass(1);
  expect([signed.isDue, write(0)]).toEqual([true, 4]);
  expect(signed.signed.unsignedSince).toBeUndefined();
  pass(EVERY_MS);
  expect([signed.isDue, write(0)]).toEqual([false, undefined]);
});

test('a record that wants a head gets one at once, also if one of a batch before it is being written', () => {
  const { signed, write, headOf } = treeAfter();
  const batch = signed.extended(leavesOf(Buffer.from('record\n')));
  const head = headOf(batch);
  signed.signWith(8);
  signed.commit(batch, head);
  expect([write(1), write(1)]).toEqual([2, undefined]);
});

test('the head at the end covers what is under none, whenever the last one was', () => {
  const { signed, write } = treeAfter();
  write(1);
  expect(signed.lastHead()).toBeUndefined();
  write(1);
  const checkpoint = signed.lastHead() ?? '';
  expect(parseCheckpoint(checkpoint)?.size).toBe(2);
  signed.commit(signed.logTree.tree, checkpoint);
  expect([signed.lastHead(), signed.signed]).toEqual([undefined, { checkpoint, unsignedSince: undefined }]);
});

test('a batch that could not be written leaves the tree as it was', () => {
  const { signed } = treeAfter(1);
  const before = signed.logTree.tree.root;
  signed.extended(leavesOf(Buffer.from('record\n')));
  expect([signed.logTree.tree.size, signed.logTree.tree.root]).toEqual([1, before]);
});

describe.each([-3_600_000, 3_600_000])('records behind a clock that was set by %i ms', (ms) => {
  const NOW = Date.parse('2026-03-01T00:00:00Z');

  test('are signed at once, as are those that got their time before and are written after a head', () => {
    const { signed, write } = treeAfter();
    expect([write(1, NOW), write(1, NOW + 1), signed.isDue]).toEqual([1, undefined, false]);
    expect([write(1, NOW + ms), write(1, NOW + ms)]).toEqual([3, undefined]);
    expect([write(2, NOW + 2, NOW + ms), write(1, NOW + ms), signed.isDue]).toEqual([6, undefined, false]);
    expect([write(2, NOW + ms, NOW), write(1, NOW)]).toEqual([9, undefined]);
  });

  test('want a head until one is in the file', () => {
    const { signed, write, headOf } = treeAfter();
    write(1, NOW);
    write(1, NOW);
    const lost = headOf(signed.extended(leavesOf(Buffer.from('record\n'))), NOW + ms);
    expect([lost !== undefined, signed.isDue, write(1, NOW + ms), signed.isDue]).toEqual([
      true,
      true,
      3,
      false,
    ]);
  });
});
