import { expect, test } from '@jest/globals';
import { withinFiles } from '../../src/gateway/connection-limits.ts';

const usual = { connections: 10_000, connectionsPerAddress: 1_000 };

test.each([
  [Number.POSITIVE_INFINITY, usual],
  [13_334, usual],
  [4_096, { connections: 3_072, connectionsPerAddress: 1_000 }],
  // Otherwise one address could take all of them.
  [1_024, { connections: 768, connectionsPerAddress: 384 }],
])('of a process that may open %d files', (files, expected) => {
  expect(withinFiles(usual, files)).toEqual(expected);
});

test('stay as they are if there are files enough, whatever one address may have', () => {
  const few = { connections: 30, connectionsPerAddress: 100 };
  expect(withinFiles(few, 40)).toEqual(few);
});
