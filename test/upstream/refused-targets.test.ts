import { expect, test } from '@jest/globals';
import { targetRefused } from '../../src/handshake/errors.ts';
import { RefusedTargets } from '../../src/upstream/credential-circuit.ts';

const request = { client: 'a', target: '/items?q=1' };

function at(perTarget: number) {
  let now = 0;
  const targets = new RefusedTargets({ now: () => now }, perTarget);
  const refuse = (): void => targets.note(request, targetRefused(), targets.count);
  const pass = (ms: number): void => {
    now += ms;
  };
  return { targets, refuse, pass };
}

test('a target is barred for the rest of the minute after two refusals, and not after one', () => {
  const { targets, refuse, pass } = at(1);
  refuse();
  expect(targets.bars(request)).toBe(false);
  refuse();
  expect(targets.bars(request)).toBe(true);
  expect(targets.bars({ ...request, target: '/items?q=2' })).toBe(false);
  pass(60_000);
  expect(targets.bars(request)).toBe(false);
});

test('refusals of requests that were under way at the same time count once', () => {
  const { targets, refuse } = at(1);
  for (const _ of [1, 2, 3]) targets.note(request, targetRefused(), 0);
  expect(targets.bars(request)).toBe(false);
  refuse();
  expect(targets.bars(request)).toBe(true);
});

test('a response to a target takes its refusals back', () => {
  const { targets, refuse } = at(2);
  refuse();
  targets.accepted(request);
  refuse();
  expect(targets.bars(request)).toBe(false);
});

test('other errors are no refusals', () => {
  const { targets } = at(2);
  for (let count = 0; count < 9; count += 1) targets.note(request, new Error('broken'), 0);
  expect(targets.bars(request)).toBe(false);
});
